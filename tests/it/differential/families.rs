//! The templates, one block per family; see `grammar` for the language.

use super::grammar::Template;
use super::run::{Kind, Step};

/// A family of commands and the letter of its keys.
pub struct Family {
    pub name: &'static str,
    letter: char,
    templates: Vec<Template>,
}

impl Family {
    pub fn parse(name: &'static str, letter: char, text: &'static str) -> Family {
        let templates = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(Template::parse)
            .collect();
        Family {
            name,
            letter,
            templates,
        }
    }

    /// The full names of the commands that it draws, in lower case; of commands with
    /// subcommands the container's too.
    pub fn commands(&self) -> impl Iterator<Item = String> {
        self.templates.iter().flat_map(Template::commands)
    }

    /// A command without which the family cannot be compared with an older oracle.
    pub fn needs(&self) -> Option<&'static str> {
        (self.name == "fields").then_some("hsetex")
    }

    /// Draws one step.
    pub fn draw(&self, rng: &mut fastrand::Rng) -> Step {
        let template = &self.templates[rng.usize(..self.templates.len())];
        let mut args = template.draw(rng, self.letter);
        let kind = match template.name() {
            "ITERATE" => {
                args.remove(0);
                Kind::Iterate
            }
            _ if template.has_short_ttl() => Kind::Short,
            _ => Kind::Call,
        };
        Step {
            args,
            kind,
            flush: true,
        }
    }
}

/// The commands that are mixed into every sequence.
pub fn common() -> Family {
    Family::parse("common", 's', COMMON)
}

/// All families.
pub fn all() -> Vec<Family> {
    [
        ("strings", 's', STRINGS),
        ("bits", 'b', BITS),
        ("bitfield", 'b', BITFIELD),
        ("hll", 'p', HLL),
        ("keys", 's', KEYS),
        ("hashes", 'h', HASHES),
        ("fields", 'h', FIELDS),
        ("lists", 'l', LISTS),
        ("sets", 'e', SETS),
        ("zsets", 'z', ZSETS),
        ("zstores", 'z', ZSTORES),
        ("geo", 'z', GEO),
        ("streams", 'm', STREAMS),
        ("groups", 'm', GROUPS),
        ("sort", 'x', SORT),
        ("scan", 's', SCAN),
        ("blocking", 'l', BLOCKING),
        ("payloads", 's', PAYLOADS),
        ("transactions", 's', TRANSACTIONS),
        ("scripts", 's', SCRIPTS),
        ("server", 's', SERVER),
    ]
    .into_iter()
    .map(|(name, letter, text)| Family::parse(name, letter, text))
    .collect()
}

const COMMON: &str = "
    SELECT $db
    SWAPDB $db $db
    MOVE $K $db
    COPY $K $K [ DB $db ] [ REPLACE ]
    DEL { $K }
    EXPIRE $K $ex
    PERSIST $K
    TTL $K
    PEXPIRE $K $short
    PEXPIRE $K -1
    RENAME $K $K
    TYPE $K
    DBSIZE
    EXISTS { $K }
    FLUSHDB [ ASYNC | SYNC ]
";

const STRINGS: &str = "
    SET $k $v
    SET $k $v
    SET $k $v [ NX | XX ] [ GET ] [ KEEPTTL | EX $ex | PX $px | EXAT $exat | PXAT $pxat ]
    SET $k $v [ NX ] [ XX ] [ GET ] [ KEEPTTL ] [ EX $ex ] [ PX $px ] [ EXAT $exat ]
    SET $k $v PX $short
    GET $k
    GET $k
    GETDEL $k
    GETEX $k
    GETEX $k [ EX $ex | PX $px | EXAT $exat | PXAT $pxat | PERSIST ]
    GETEX $k [ EX $ex ] [ PX $px ] [ PERSIST ]
    GETEX $k PX $short
    GETSET $k $v
    GETRANGE $k $i $i
    SUBSTR $k $i $i
    SETRANGE $k $offset $v
    STRLEN $k
    APPEND $k $v
    INCR $k
    DECR $k
    INCRBY $k $n
    DECRBY $k $n
    INCRBYFLOAT $k $float
    MGET { $K }
    MSET { $k $v }
    MSETNX { $k $v }
    MSET { $K $v }
    SETEX $k $ex $v
    PSETEX $k $px $v
    PSETEX $k $short $v
    SETNX $k $v
    SET $c $v
    APPEND $c $v
    LCS $c $c [ LEN ] [ IDX ] [ MINMATCHLEN $count ] [ WITHMATCHLEN ]
    LCS $c $K
    EXPIRETIME $k
";

const BITS: &str = "
    SET $k $v
    APPEND $k $v
    SETRANGE $k $far $v
    SETBIT $k $bit ( 0 | 1 | 1 | 2 )
    SETBIT $k $bit 1
    SETBIT $k $bit 1
    GETBIT $k $bit
    BITCOUNT $k
    BITCOUNT $k $i $i [ BYTE | BIT | FOO ]
    BITCOUNT $k $bit $bit BIT
    BITCOUNT $k $i
    BITPOS $k ( 0 | 1 | 2 )
    BITPOS $k ( 0 | 1 ) $i [ $i [ BYTE | BIT ] ]
    BITPOS $k ( 0 | 1 ) $bit $bit BIT
    BITOP ( AND | OR | XOR | NOT ) $k { $k }
    BITOP ( AND | OR | XOR | NOT | FOO ) $K { $K }
    BITOP NOT $k $k
    GETRANGE $k $i $i
    GETRANGE $k $far -1
    STRLEN $k
    GET $k
    DEL $k
";

const BITFIELD: &str = "
    BITFIELD $k { GET $width $place | SET $width $place $bn | INCRBY $width $place $n }
    BITFIELD $k { OVERFLOW ( WRAP | SAT | FAIL | FOO ) INCRBY $width $place $n }
    BITFIELD $k OVERFLOW ( WRAP | SAT | FAIL ) { SET ( u8 | i8 | i5 | u63 | i64 ) $place $bn | INCRBY ( u8 | i8 | i64 ) $place $n }
    BITFIELD $k GET ( u8 | i7 | i64 | u1 ) $place
    BITFIELD $k
    BITFIELD_RO $k { GET $width $place }
    BITFIELD_RO $k GET u8 $place [ SET u8 0 1 ]
    SET $k $v
    GET $k
    STRLEN $k
    SETBIT $k $bit 1
";

const HLL: &str = "
    PFADD $p {* $M }
    PFADD $p { $m }
    PFADD $p
    PFCOUNT $p { $p }
    PFCOUNT
    PFMERGE $p { $p }
    PFMERGE $p
    PFADD u:0 {* $M }
    PFADD u:1 { $m }
    PFCOUNT ( u:0 | u:1 | u:2 )
    PFMERGE u:1 u:0 $p
    SET w:0 $v
    RPUSH w:1 $m
    GET $p
    STRLEN $p
    TYPE $p
    DEL $p
    COPY p:0 p:1 REPLACE
    RENAME p:2 p:3
    EXPIRE $p $ex
";

const KEYS: &str = "
    SET $K $v
    SET $K $v EX $ex
    RPUSH $K { $m }
    SADD $K { $m }
    HSET $K $m $v
    ZADD $K $score $m
    DEL { $K }
    UNLINK { $K }
    EXISTS { $K }
    TOUCH { $K }
    TYPE $K
    TTL $K
    PTTL $K
    EXPIRETIME $K
    PEXPIRETIME $K
    EXPIRE $K $ex
    EXPIRE $K $ex [ NX ] [ XX ] [ GT ] [ LT ]
    EXPIRE $K $ex ( NX | XX | GT | LT | FOO )
    PEXPIRE $K $px ( NX | XX | GT | LT )
    EXPIREAT $K $exat [ NX | XX | GT | LT ]
    PEXPIREAT $K $pxat [ NX | XX | GT | LT ]
    PEXPIRE $K $short
    PERSIST $K
    RENAME $K $K
    RENAMENX $K $K
    COPY $K $K [ DB $db ] [ REPLACE ]
    MOVE $K $db
    OBJECT ( ENCODING | REFCOUNT | FREQ | FOO ) $K
    OBJECT IDLETIME $K
    RANDOMKEY
    KEYS $pat
    DBSIZE
    SELECT $db
    SWAPDB $db $db
    FLUSHDB
    FLUSHALL
    ECHO $v
    PING [ $v ]
    FOO $K
";

const HASHES: &str = "
    HSET $k {* $M $v }
    HSET $k { $m $v }
    HSET $k { $m $v }
    HSETNX $k $m $v
    HMSET $k { $m $v }
    HGET $k $m
    HMGET $k { $m }
    HGETALL $k
    HKEYS $k
    HVALS $k
    HLEN $k
    HDEL $k {* $M }
    HDEL $k { $m }
    HEXISTS $k $m
    HINCRBY $k $m $n
    HINCRBY $k $m $n
    HINCRBYFLOAT $k $m $float
    HSTRLEN $k $m
    HRANDFIELD $k [ $count [ WITHVALUES | FOO ] ]
    HSET $k $m $v $m
";

/// Needs an oracle of Redis 8.
const FIELDS: &str = "
    HSET $k {* $M $v }
    HSET $k { $m $v }
    HGETALL $k
    HLEN $k
    HDEL $k { $m }
    HINCRBY $k $m $n
    HSETNX $k $m $v
    HEXPIRE $k $ex FIELDS 1 $m
    HEXPIRE $k $ex [ NX | XX | GT | LT ] FIELDS 2 $m $m
    HEXPIRE $k $ex [ NX | FOO ] [ XX ] FIELDS 1 $m
    HPEXPIRE $k $px [ NX | XX | GT | LT ] FIELDS 2 $m $m
    HEXPIREAT $k $exat [ NX | XX | GT | LT ] FIELDS 3 $m $m $m
    HPEXPIREAT $k $pxat [ NX | XX | GT | LT ] FIELDS 1 $m
    HPEXPIREAT $k $pxat FIELDS $count { $m }
    HPERSIST $k FIELDS 1 $m
    HPERSIST $k FIELDS 2 $m $m
    HPERSIST $k [ FIELDS ] $count { $m }
    HTTL $k FIELDS 2 $m $m
    HPTTL $k FIELDS 2 $m $m
    HEXPIRETIME $k FIELDS 1 $m
    HPEXPIRETIME $k FIELDS 2 $m $m
    HTTL $k [ FIELDS | FOO ] $count { $m }
    HGETEX $k [ EX $ex | PX $px | EXAT $exat | PXAT $pxat | PERSIST ] FIELDS 2 $m $m
    HGETEX $k [ EX $ex ] [ PX $px ] [ PERSIST ] FIELDS $count { $m }
    HSETEX $k [ FNX | FXX ] [ EX $ex | PX $px | EXAT $exat | PXAT $pxat | KEEPTTL ] FIELDS 2 $m $v $m $v
    HSETEX $k [ KEEPTTL | EX $ex ] [ FXX | FNX ] FIELDS 1 $m $v
    HSETEX $k [ FNX ] [ FXX ] [ EX $ex ] [ PX $px ] [ KEEPTTL ] FIELDS $count { $m $v }
    HGETDEL $k FIELDS 2 $m $m
    HGETDEL $k [ FIELDS ] $count { $m }
    HTTL $K FIELDS 1 $m
    HEXPIRE $K $ex FIELDS 1 $m
    HSETEX $K EX $ex FIELDS 1 $m $v
    COPY $k $k [ REPLACE ]
    RENAME $k $k
";

const LISTS: &str = "
    RPUSH $k {* $M }
    LPUSH $k {* $M }
    RPUSH $k { $m }
    LPUSH $k { $m }
    LPUSHX $k { $m }
    RPUSHX $k { $m }
    LPOP $k [ $count ]
    RPOP $k [ $count ]
    LLEN $k
    LINDEX $k $i
    LSET $k $i $m
    LRANGE $k $i $i
    LRANGE $k 0 -1
    LTRIM $k $i $i
    LREM $k $times $m
    LINSERT $k ( BEFORE | AFTER | FOO ) $m $m
    LPOS $k $m [ RANK $times ] [ COUNT $count ] [ MAXLEN $count ]
    LPOS $k $m
    LMOVE $k $k ( LEFT | RIGHT ) ( LEFT | RIGHT | FOO )
    LMOVE $k $k ( LEFT | RIGHT ) ( LEFT | RIGHT )
    RPOPLPUSH $k $k
    LMPOP $nk ( LEFT | RIGHT | FOO ) [ COUNT $count ]
";

const SETS: &str = "
    SADD $k {* $M }
    SADD $k { $m }
    SADD $k { $m }
    SREM $k { $m }
    SREM $k {* $M }
    SCARD $k
    SISMEMBER $k $m
    SMISMEMBER $k { $m }
    SMEMBERS $k
    SMOVE $k $k $m
    SPOP $k [ $count ]
    SRANDMEMBER $k [ $count ]
    SINTER { $k }
    SUNION { $k }
    SDIFF { $k }
    SINTERSTORE $k { $k }
    SUNIONSTORE $k { $k }
    SDIFFSTORE $k { $k }
    SUNIONSTORE $K { $k }
    SINTERCARD $nk [ LIMIT $count ]
";

const ZSETS: &str = "
    ZADD $k {* $score $M }
    ZADD $k { $score $m }
    ZADD $k { $score $m }
    ZADD $k { 0 $m }
    ZADD $k [ NX | XX ] [ GT | LT ] [ CH ] { $score $m }
    ZADD $k [ NX ] [ XX ] [ GT ] [ LT ] [ CH ] [ INCR ] { $score $m }
    ZADD $k [ XX ] [ GT | LT ] [ CH ] INCR $score $m
    ZINCRBY $k $score $m
    ZREM $k { $m }
    ZREM $k {* $M }
    ZCARD $k
    ZSCORE $k $m
    ZMSCORE $k { $m }
    ZRANK $k $m
    ZREVRANK $k $m
    ZCOUNT $k $zb $zb
    ZADD $y {* 0 $M }
    ZADD $y { 0 $m }
    SET w:0 $v
    ZLEXCOUNT $y $lex $lex
    ZRANGE $k $i $i [ REV ] [ WITHSCORES ]
    ZRANGE $k 0 -1 [ REV ] WITHSCORES
    ZRANGE $k $zb $zb BYSCORE [ REV ] [ LIMIT $i $i ] [ WITHSCORES ]
    ZRANGE $y $lex $lex BYLEX [ REV ] [ LIMIT $i $i ] [ WITHSCORES ]
    ZRANGE $k $i $i [ BYSCORE ] [ BYLEX ] [ REV ] [ LIMIT $i $i ] [ WITHSCORES ]
    ZREVRANGE $k $i $i [ WITHSCORES ]
    ZRANGEBYSCORE $k $zb $zb [ WITHSCORES ] [ LIMIT $i $i ]
    ZREVRANGEBYSCORE $k $zb $zb [ WITHSCORES ] [ LIMIT $i $i ]
    ZRANGEBYLEX $y $lex $lex [ LIMIT $i $i ]
    ZREVRANGEBYLEX $y $lex $lex [ LIMIT $i $i ]
    ZREMRANGEBYRANK $k $i $i
    ZREMRANGEBYSCORE $k $zb $zb
    ZREMRANGEBYLEX $y $lex $lex
    ZPOPMIN $k [ $count ]
    ZPOPMAX $k [ $count ]
    ZMPOP $nk ( MIN | MAX | FOO ) [ COUNT $count ]
    ZRANDMEMBER $k [ $count [ WITHSCORES | FOO ] ]
";

const ZSTORES: &str = "
    ZADD $k { $score $m }
    ZADD $k { $score $m }
    ZADD $k {* $score $M }
    ZADD $y {* 0 $M }
    SADD e:0 { $m }
    ZUNION $nk [ WEIGHTS $score $score ] [ AGGREGATE ( SUM | MIN | MAX | FOO ) ] [ WITHSCORES ]
    ZUNION $nk WITHSCORES
    ZINTER $nk [ WEIGHTS $score $score ] [ AGGREGATE ( SUM | MIN | MAX ) ] [ WITHSCORES ]
    ZINTER 2 $set $set [ WEIGHTS ( 2 | -1 | 0.5 ) ( 1 | 3 | foo ) ] [ AGGREGATE ( SUM | MIN | MAX ) ] WITHSCORES
    ZUNION 2 $set $set [ WEIGHTS ( 2 | -1 | 0.5 ) ( 1 | 3 | foo ) ] [ AGGREGATE ( SUM | MIN | MAX ) ] WITHSCORES
    ZDIFF $nk [ WITHSCORES ]
    ZDIFF 2 $set $set WITHSCORES
    ZINTERCARD $nk [ LIMIT $count ]
    ZUNIONSTORE $k $nk [ WEIGHTS $score $score ] [ AGGREGATE ( SUM | MIN | MAX ) ]
    ZINTERSTORE $k $nk [ AGGREGATE ( SUM | MIN | MAX ) ]
    ZUNIONSTORE $k 2 $set $set [ WEIGHTS ( 2 | 0 ) ( 1 | -3 ) ] [ AGGREGATE ( SUM | MIN | MAX ) ]
    ZDIFFSTORE $k $nk
    ZRANGESTORE $k $k $i $i [ REV ] [ LIMIT $i $i ]
    ZRANGESTORE $k $k $zb $zb BYSCORE [ REV ] [ LIMIT $i $i ]
    ZRANGESTORE $k $y $lex $lex BYLEX [ REV ] [ LIMIT $i $i ]
    ZRANGE $k 0 -1 WITHSCORES
";

/// One member at most has a score that is no position: Redis orders members at the same distance
/// as its partial quicksort leaves them.
const GEO: &str = "
    GEOADD $k {* $at $M }
    GEOADD $k { $at $m }
    GEOADD $k { $at $m }
    GEOADD $k [ NX | XX ] [ CH ] { $at $m }
    GEOADD $k [ NX ] [ XX ] [ CH ] [ GT ] { $at $m }
    ZADD $k $score m1
    GEODIST $k $m $m [ $unit ]
    GEODIST $k ( 1 | 2 ) ( 3 | m1 ) [ $unit ]
    GEOHASH $k { $m }
    GEOPOS $k { $m }
    GEOSEARCH $k ( FROMMEMBER $m | FROMLONLAT $at ) ( BYRADIUS $radius $unit | BYBOX $radius $radius $unit ) [ ASC | DESC ] [ COUNT $count | COUNT $count ANY ] [ WITHCOORD ] [ WITHDIST ] [ WITHHASH ]
    GEOSEARCH $k FROMLONLAT $at ( BYRADIUS | BYBOX 1000 ) $radius $unit [ ASC | DESC ] [ COUNT 3 | COUNT 2 ANY ] [ WITHCOORD ] [ WITHDIST ] [ WITHHASH ]
    GEOSEARCH $k [ FROMMEMBER $m ] [ FROMLONLAT $at ] [ BYRADIUS $radius $unit ] [ BYBOX $radius $radius $unit ] [ ASC ] [ DESC ] [ COUNT $count ] [ ANY ] [ STOREDIST ]
    GEOSEARCHSTORE $k $k ( FROMMEMBER $m | FROMLONLAT $at ) ( BYRADIUS $radius $unit | BYBOX $radius $radius $unit ) [ ASC | DESC ] [ COUNT $count | COUNT 3 ANY ] [ STOREDIST ]
    GEOSEARCHSTORE $k $k FROMLONLAT $at BYRADIUS 5000 km [ WITHDIST ] [ STOREDIST ]
    GEORADIUS $k $at $radius $unit [ WITHCOORD ] [ WITHDIST ] [ WITHHASH ] [ COUNT $count | COUNT 2 ANY ] [ ASC | DESC ]
    GEORADIUS $k $at $radius $unit [ COUNT $count ] [ ASC | DESC ] [ STORE $k | STOREDIST $k ] [ WITHDIST ]
    GEORADIUSBYMEMBER $k $m $radius $unit [ WITHCOORD ] [ WITHDIST ] [ WITHHASH ] [ COUNT $count | COUNT 2 ANY ] [ ASC | DESC ]
    GEORADIUSBYMEMBER $k $m $radius $unit [ COUNT $count ] [ ASC | DESC ] [ STORE $k | STOREDIST $k ]
    GEORADIUS_RO $k $at $radius $unit [ WITHCOORD ] [ WITHDIST ] [ WITHHASH ] [ COUNT $count ] [ ASC | DESC ] [ STORE $k ]
    GEORADIUSBYMEMBER_RO $k $m $radius $unit [ WITHDIST ] [ COUNT $count ] [ ASC | DESC ]
    ZRANGE $k 0 -1 WITHSCORES
    ZREM $k { $m }
";

const SORT: &str = "
    RPUSH l:0 { ( 1 | 2 | 3 | 10 | -5 | 2.5 ) }
    RPUSH l:1 { $m }
    SADD e:0 { ( 1 | 2 | 3 | 10 | -5 ) }
    SADD e:1 { $m }
    ZADD z:0 { $score ( 1 | 2 | 3 | 0 ) }
    MSET s:0 $n s:1 $n s:2 $v s:3 ( 5 | 1 )
    HSET h:0 0 $n m1 $v
    HSET h:1 0 $n m1 $v
    HSET h:2 0 ( 7 | 8 ) m1 $v
    SORT $k [ ALPHA ] [ ASC | DESC ]
    SORT $k ALPHA
    SORT $k [ BY $by ] [ LIMIT $i $i ] [ GET $get ] [ GET $get ] [ ASC ] [ DESC ] [ ALPHA ]
    SORT ( l:0 | e:0 | z:0 ) [ BY $by ] [ LIMIT $i $i ] [ GET $get ] [ DESC ]
    RPUSH q:list { $m }
    ZADD q:zset { $score $m }
    SORT ( q:list | q:zset ) BY ( nosort | w ) [ LIMIT $i $i ] [ GET $get ] [ DESC ]
    SORT ( l:0 | z:0 ) BY nosort [ LIMIT $i $i ] [ GET $get ] [ DESC ]
    SORT ( l:0 | e:0 | z:0 ) [ BY $by ] [ LIMIT $i $i ] [ GET $get ] STORE $K
    SORT ( l:0 | e:0 | z:0 ) ALPHA [ LIMIT $i $i ] [ GET $get ] STORE $K
    SORT_RO $k [ BY $by ] [ LIMIT $i $i ] [ GET $get ] [ ALPHA ]
    SORT_RO $k STORE $K
    LRANGE l:0 0 -1
";

const STREAMS: &str = "
    XADD $k $sid {* $m $v }
    XADD $k $sid {* $m $v }
    XADD $k $up $m $v
    XADD $k $up $m $v
    XADD $k $up $m $v
    XADD $k [ NOMKSTREAM ] [ MAXLEN [ = ] $len | MINID [ = ] $sid ] $up { $m $v }
    XADD $k LIMIT ( 0 | 5 | -1 ) $up a b
    XLEN $k
    XDEL $k { $sid }
    XTRIM $k ( MAXLEN | MINID ) [ = ] $len
    XTRIM $k MINID [ = ] $sid [ LIMIT 3 ]
    XRANGE $k $from $to [ COUNT $count ]
    XREVRANGE $k $to $from [ COUNT $count ]
    XRANGE $k - + [ COUNT $count ]
    XREAD [ COUNT $count ] STREAMS $k $sid
    XREAD [ COUNT $count ] [ BLOCK 1 ] STREAMS $k $k ( $sid | $ ) $sid
    XSETID $k $sid [ ENTRIESADDED ( 0 | 3 | 100 | -1 | foo ) ] [ MAXDELETEDID $sid ]
    XINFO STREAM $k
    XINFO STREAM $k FULL [ COUNT $count ]
    DUMP m:none
    OBJECT ENCODING $k
";

const GROUPS: &str = "
    XADD $k $up $m $v
    XADD $k $up $m $v
    XDEL $k $sid
    XTRIM $k MAXLEN $len
    XGROUP CREATE $k $g ( $sid | 0 | $ ) [ MKSTREAM ] [ ENTRIESREAD $len ]
    XGROUP CREATE $k $g 0 MKSTREAM
    XGROUP SETID $k $g ( $sid | 0 | $ | - | + ) [ ENTRIESREAD $len ]
    XGROUP DESTROY $k $g
    XGROUP CREATECONSUMER $k $g $w
    XGROUP DELCONSUMER $k $g $w
    XREADGROUP GROUP $g $w [ COUNT $count ] [ NOACK ] STREAMS $k >
    XREADGROUP GROUP $g $w [ COUNT $count ] STREAMS $k >
    XREADGROUP GROUP $g $w [ COUNT $count ] STREAMS $k ( 0 | $sid )
    XREADGROUP GROUP $g $w STREAMS $k $k > $sid
    XACK $k $g { $sid }
    XPENDING $k $g
    XPENDING $k $g [ IDLE ( 0 | 10000000 ) ] $from $to $len [ $w ]
    XCLAIM $k $g $w ( 0 | 10000000 ) { $sid } [ IDLE 0 ] [ RETRYCOUNT $len ] [ FORCE ] [ JUSTID ] [ LASTID $sid ]
    XAUTOCLAIM $k $g $w ( 0 | 10000000 ) $from [ COUNT $count ] [ JUSTID ]
    XINFO GROUPS $k
    XINFO CONSUMERS $k $g
    XINFO STREAM $k FULL COUNT 0
";

const SCAN: &str = "
    SET $K $v
    SADD e:0 {* $M }
    HSET h:0 {* $M $v }
    ZADD z:0 {* $score $M }
    RPUSH $K $m
    ITERATE SCAN 0 [ MATCH $pat ] [ COUNT ( 1 | 2 | 10 | 1000 ) ] [ TYPE ( string | hash | list | set | zset | stream | STRING | foo ) ]
    ITERATE SSCAN ( e:0 | e:1 ) 0 [ MATCH $pat ] [ COUNT ( 1 | 2 | 10 | 1000 ) ]
    ITERATE HSCAN ( h:0 | h:1 ) 0 [ MATCH $pat ] [ COUNT ( 1 | 2 | 10 | 1000 ) ]
    ITERATE ZSCAN ( z:0 | z:1 ) 0 [ MATCH $pat ] [ COUNT ( 1 | 2 | 10 | 1000 ) ]
    SCAN ( 0 | foo | 1.5 | 99 ) [ MATCH $pat ] [ COUNT $count ] [ TYPE ( string | foo ) ] [ FOO ]
    SSCAN $K ( 0 | foo | 7 ) [ MATCH $pat ] [ COUNT $count ]
    HSCAN $K ( 0 | foo | 7 ) [ MATCH $pat ] [ COUNT $count ]
    ZSCAN $K ( 0 | foo | 7 ) [ MATCH $pat ] [ COUNT $count ] [ TYPE set ]
    DEL { $K }
    KEYS $pat
";

const BLOCKING: &str = "
    RPUSH $k { $m }
    RPUSH $k { $m }
    ZADD ( z:0 | z:1 ) { $score $m }
    ! BLPOP { $k } $wait
    ! BRPOP { $k } $wait
    ! BLMOVE $k $k ( LEFT | RIGHT ) ( LEFT | RIGHT | FOO ) $wait
    ! BRPOPLPUSH $k $k $wait
    ! BLMPOP $wait $nk ( LEFT | RIGHT | FOO ) [ COUNT $count ]
    ! BZPOPMIN { ( z:0 | z:1 | z:2 ) } $wait
    ! BZPOPMAX { ( z:0 | z:1 | $k ) } $wait
    ! BZMPOP $wait 2 ( z:0 | z:2 ) z:1 ( MIN | MAX | FOO ) [ COUNT $count ]
    LRANGE $k 0 -1
";

// Keys of their own: the payloads hold bytes at which the oracle's SORT ALPHA ends a text.
const PAYLOADS: &str = "
    RESTORE ( r:0 | r:1 | r:2 ) ( 0 | 100000 | 999999999 | -1 | foo ) $payload [ REPLACE ] [ IDLETIME ( 0 | 5 | -1 ) | FREQ ( 0 | 255 | 256 ) ]
    RESTORE ( r:0 | r:1 | r:2 ) $pxat $payload [ REPLACE ] ABSTTL
    RESTORE-ASKING ( r:0 | r:1 | r:2 ) 0 $payload [ REPLACE ]
    SET ( r:0 | r:1 ) $v
    TYPE ( r:0 | r:1 | r:2 )
    COPY ( r:0 | r:1 ) r:2 [ DB $db ] [ REPLACE ]
    DEL ( r:0 | r:1 | r:2 )
    OBJECT ENCODING ( r:0 | r:1 | r:2 )
";

/// `draw` has the commands of a transaction follow a MULTI, and EXEC or DISCARD end it.
const TRANSACTIONS: &str = "
    ! MULTI
    ! MULTI
    ! EXEC
    ! DISCARD
    WATCH { $K }
    UNWATCH
    SET $K $v
    INCR $k
    RPUSH $K { $m }
";

const SCRIPTS: &str = "
    ! EVAL $script 1 $K $v
    ! EVAL $script ( 0 | 1 | -1 | foo )
    ! EVAL_RO $script 1 $K $v
    EVALSHA $sha 1 $K $v
    EVALSHA_RO $sha 1 $K $v
    SCRIPT LOAD $script
    SCRIPT EXISTS { $sha }
    SCRIPT FLUSH [ ASYNC | SYNC | FOO ]
    ! SCRIPT KILL
    FUNCTION LOAD [ REPLACE ] $library
    FUNCTION DELETE ( one | two | none )
    FUNCTION FLUSH [ ASYNC | SYNC | FOO ]
    FUNCTION LIST LIBRARYNAME ( one | two | none ) [ WITHCODE ]
    FUNCTION RESTORE $v [ FLUSH | APPEND | REPLACE | FOO ]
    ! FUNCTION DUMP
    FUNCTION STATS
    FUNCTION KILL
    FCALL ( set | get | none ) ( 0 | 1 | foo ) $K $v
    FCALL ( set | get ) 1 $K $v
    FCALL_RO ( set | get | none ) 1 $K $v
    GET $K
";

const SERVER: &str = "
    ! PUBLISH $v $v
    ! SPUBLISH $v $v
    PUBSUB ( CHANNELS | SHARDCHANNELS ) [ $pat ]
    PUBSUB ( NUMSUB | SHARDNUMSUB ) [ $v ]
    ! PUBSUB NUMPAT
    ! HELLO ( 1 | 4 | foo )
    ! AUTH ( foo | default foo )
    ! RESET
    ! CLIENT SETNAME ( one | two | $v )
    CLIENT GETNAME
    CLIENT GETREDIR
    CLIENT TRACKINGINFO
    ! CLIENT CACHING ( YES | FOO )
    ! CLIENT ( NO-EVICT ) ( ON | OFF | FOO )
    ! CLIENT UNBLOCK 999999 [ TIMEOUT | ERROR | FOO ]
    ! CLIENT UNPAUSE
    ! CLIENT KILL ( ID 999999 | 127.0.0.1:1 | FOO )
    ! CLIENT ( ID | INFO )
    ! CLIENT LIST [ TYPE ( REPLICA | FOO ) | ID 999999 ]
    ! CONFIG GET ( hash-max-listpack-entries | nope | proto-max-bulk-len )
    ! CONFIG SET ( nope 1 | proto-max-bulk-len foo | maxmemory 0 )
    ! CONFIG ( RESETSTAT | REWRITE )
    COMMAND GETKEYS ( SET $k $v | MSET { $k $v } | ZUNIONSTORE $k $nk | XREAD STREAMS $k 0 | ECHO x )
    COMMAND GETKEYSANDFLAGS ( SET $k $v [ GET ] | SORT $k STORE $k | BITFIELD $k GET u8 0 | LMPOP $nk LEFT )
    ! COMMAND ( COUNT | LIST | DOCS | INFO )
    ! MEMORY USAGE $K
    ! MEMORY ( PURGE | STATS | DOCTOR | MALLOC-STATS )
    ! ACL ( WHOAMI | USERS )
    ! ACL CAT [ stream | foo ]
    ! ACL ( GENPASS | GETUSER default | LIST )
    ! ACL DRYRUN ( default | nobody ) ( GET $K | FOO )
    ! LATENCY ( DOCTOR | HISTOGRAM | LATEST )
    ! LATENCY HISTORY nope
    ! LATENCY RESET nope
    ! LATENCY GRAPH nope
    ! SLOWLOG ( GET | LEN | RESET )
    ! MODULE LIST
    ! DEBUG OBJECT $K
    CLUSTER ( INFO | NODES | SLOTS | SHARDS | MYID | LINKS | KEYSLOT k | COUNTKEYSINSLOT 1 | GETKEYSINSLOT 1 1 )
    CLUSTER ( ADDSLOTS 1 | ADDSLOTSRANGE 1 2 | DELSLOTS 1 | DELSLOTSRANGE 1 2 | FLUSHSLOTS | SETSLOT 1 STABLE | BUMPEPOCH )
    CLUSTER ( FAILOVER | FORGET x | MEET 127.0.0.1 1 | REPLICAS x | REPLICATE x | RESET | SLAVES x | COUNT-FAILURE-REPORTS x )
    ! CLUSTER ( SAVECONFIG | SET-CONFIG-EPOCH 1 )
    READONLY
    READWRITE
    ASKING
    ! WAIT 0 ( 0 | 1 | -1 | foo )
    ! ROLE
    ! REPLICAOF NO ONE
    ! SLAVEOF NO ONE
    ! FAILOVER ( ABORT | FOO )
    ! INFO [ server | foo ]
    ! TIME
    ! LASTSAVE
    ! LOLWUT
    PFDEBUG ENCODING p:0
";
