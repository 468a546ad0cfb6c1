# Read by the suite's test_helper.tcl when all of its procedures are there: what
# differs between the suite's own server and this one, and nothing about single
# tests, which stand in the list of what is left out.

# Tests are left out by name alone. Without this the suite would leave out whole
# blocks by their tags and say only the tag.
proc tags_acceptable {tags err_return} {
    return 1
}

# A process of several threads has not stopped when `kill` returns: the signal
# goes to one of them, and the others run on until that one is scheduled.
rename exec exec_of_suite
proc exec {args} {
    set result [exec_of_suite {*}$args]
    if {[lrange $args 0 1] eq {kill -SIGSTOP}} {
        foreach task [glob -nocomplain /proc/[lindex $args 2]/task/*] {
            for {set tries 0} {$tries < 5000} {incr tries} {
                # A thread that has ended meanwhile has no status.
                if {[catch {exec_of_suite cat $task/status} status]} break
                if {[regexp {State:\s+[TtZX]} $status]} break
                after 1
            }
        }
    }
    return $result
}

# Every commit in this server's stream of commands begins with a SELECT; the
# suite's has one where the database changes.
rename attach_to_replication_stream attach_to_replication_stream_of_suite
proc attach_to_replication_stream {} {
    # The first write after a start begins a new history, at which links end: here it
    # is begun before.
    r debug change-repl-id
    set s [attach_to_replication_stream_of_suite]
    unset -nocomplain ::stream_db($s)
    return $s
}
rename read_from_replication_stream read_any_from_replication_stream
proc read_from_replication_stream {s} {
    while 1 {
        set command [read_any_from_replication_stream $s]
        if {[lindex $command 0] ne {select}} {return $command}
        if {[info exists ::stream_db($s)] && $::stream_db($s) eq $command} continue
        set ::stream_db($s) $command
        return $command
    }
}

# What later tests count on where a test is left out: `instead` is filled by the
# runner, a piece of Tcl for the name of a test.
rename test test_of_suite
proc test {name args} {
    if {[info exists ::instead($name)]} {uplevel 1 $::instead($name)}
    uplevel 1 [list test_of_suite $name {*}$args]
}

# Redis logs what is wrong with a payload or a file that it refuses; here the client
# is told, and the server counts its errors.
rename verify_log_message verify_log_message_of_suite
proc verify_log_message {srv_idx pattern from_line} {
    if {[string match "*integrity check failed*" $pattern] && [info commands r] ne {}} {
        assert_match {*ERR*} [r $srv_idx info errorstats]
        return
    }
    verify_log_message_of_suite $srv_idx [string map {PRIMARY MASTER} $pattern] $from_line
}

# The log has the words of Redis.
rename wait_for_log_messages wait_for_log_messages_of_suite
proc wait_for_log_messages {srv_idx patterns args} {
    set patterns [string map {PRIMARY MASTER} $patterns]
    tailcall wait_for_log_messages_of_suite $srv_idx $patterns {*}$args
}

# A server that keeps its data on disk may take longer to start on a busy machine.
rename server_is_up server_is_up_of_suite
proc server_is_up {host port retrynum} {
    server_is_up_of_suite $host $port [expr {6 * $retrynum}]
}

# A full sync goes over the one connection, which the suite of Redis 8 asks for so.
# Scripts call the server `redis`, for which Valkey has the name `server` too.
set namespace [expr {[namespace exists ::valkey] ? "::valkey" : "::redis"}]
rename ${namespace}::__dispatch__ dispatch_of_suite
proc ${namespace}::__dispatch__ {id method args} {
    if {$method eq {config} && $args eq {set repl-rdb-channel no}} {return OK}
    if {[namespace exists ::valkey] && [string tolower $method] in {eval eval_ro function script}} {
        set args [string map {server. redis.} $args]
    }
    if {$method eq {eval} && $args eq {{while true do end} 0}} {
        set result [::dispatch_of_suite $id $method {*}$args]
        wait_until_busy
        return $result
    }
    tailcall ::dispatch_of_suite $id $method {*}$args
}

# After a script that does not end the suite sleeps for 200 ms and expects the server to be busy. On a
# machine that stands still for so long it is not, and all later tests of the file meet the script.
proc wait_until_busy {} {
    for {set tries 0} {$tries < 10000} {incr tries} {
        if {[catch {r ping} reply]} {
            if {[string match "BUSY*" $reply]} return
            error $reply
        }
        after 1
    }
    error "the script does not make the server busy"
}
