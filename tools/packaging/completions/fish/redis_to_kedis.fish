complete -c redis_to_kedis -l src_addr -d 'Address of the source: host:port, [IPv6]:port' -r
complete -c redis_to_kedis -l dst_addr -d 'Address of the target' -r
complete -c redis_to_kedis -l src_db -d 'DBs to copy: a number, several with commas between them, or -1 for all' -r
complete -c redis_to_kedis -l dst_db -d 'Where these DBs go, one for each in the same order; -1: to those of the same numbers' -r
complete -c redis_to_kedis -l src_user -d 'ACL user at the source' -r
complete -c redis_to_kedis -l src_password -d 'Password at the source' -r
complete -c redis_to_kedis -l dst_user -d 'ACL user at the target' -r
complete -c redis_to_kedis -l dst_password -d 'Password at the target' -r
complete -c redis_to_kedis -l src_tls_ca -d 'File, or directory of files, with the authorities that certify the source; without it those of the system, and then the name in the certificate must be that of the host' -r -F
complete -c redis_to_kedis -l src_tls_cert -d 'File with the certificate that is shown to the source' -r -F
complete -c redis_to_kedis -l src_tls_key -d 'File with the private key of that certificate' -r -F
complete -c redis_to_kedis -l dst_tls_ca -d 'File, or directory of files, with the authorities that certify the target; without it those of the system, and then the name in the certificate must be that of the host' -r -F
complete -c redis_to_kedis -l dst_tls_cert -d 'File with the certificate that is shown to the target' -r -F
complete -c redis_to_kedis -l dst_tls_key -d 'File with the private key of that certificate' -r -F
complete -c redis_to_kedis -l prefix -d 'Copy only keys that begin with this' -r
complete -c redis_to_kedis -l rename-prefix -d 'Keys that begin with OLD begin with NEW at the target' -r
complete -c redis_to_kedis -l parallel -d 'Connections that write the copy at the same time' -r
complete -c redis_to_kedis -l pipeline -d 'Commands that are sent before their replies are read' -r
complete -c redis_to_kedis -l network_limit -d 'Read from the source, and write to the target, so many MB a second at the most' -r
complete -c redis_to_kedis -l resume -d 'Keep a checkpoint in this file, and go on from it if it is there; what comes from the source goes through FILE.rdb and FILE.stream' -r -F
complete -c redis_to_kedis -l metrics -d 'Append figures to this file once a second, as lines of JSON; - is standard output' -r -F
complete -c redis_to_kedis -l rdb_file -d 'Copy an RDB file instead of what a server has' -r -F
complete -c redis_to_kedis -l aof_file -d 'Replay an append-only file, or a manifest of several, instead of what a server has' -r -F
complete -c redis_to_kedis -l src_tls -d 'Speak TLS with the source'
complete -c redis_to_kedis -l dst_tls -d 'Speak TLS with the target'
complete -c redis_to_kedis -l exit-when-synced -d 'End once the target has what the source had when the copy was complete'
complete -c redis_to_kedis -l verify -d 'Compare all keys, report what differs, copy nothing; with --exit-when-synced: copy first'
complete -c redis_to_kedis -l keep-going -d 'Report commands that the target refuses, and go on'
complete -c redis_to_kedis -l scan -d 'Copy by SCAN and DUMP or the commands of each type, for a source that refuses PSYNC; follow its keyspace events if it gives them'
complete -c redis_to_kedis -l src_from_rdb -d 'Copy what the source has now, and do not follow it'
complete -c redis_to_kedis -l version -d 'Print version'
complete -c redis_to_kedis -s h -l help -d 'Print help'
