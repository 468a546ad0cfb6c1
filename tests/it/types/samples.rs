//! Values of every type of values, in each of their forms, and a change of each.

use kedis::encoding::ValueType;

/// A value, and what tests do with it. In all lines `{k}` is the key.
pub struct Sample {
    /// The type that TYPE returns.
    pub kind: ValueType,
    /// The key.
    pub key: &'static str,
    /// How often a line runs, and the line, in which `#` is the number of the run.
    pub made: &'static [(u32, &'static str)],
    /// What OBJECT ENCODING returns.
    pub encoding: &'static str,
    /// A command that reads it, and refuses values of other types.
    pub read: &'static str,
    /// A command that changes it, each time that it runs; `@` is the number of the run.
    pub change: &'static str,
    /// The event of the change.
    pub event: &'static str,
}

impl Sample {
    /// The lines that make the value under a key.
    pub fn lines(&self, key: &str) -> Vec<String> {
        let repeated = self.made.iter().flat_map(|(times, line)| {
            let line = line.replace("{k}", key);
            (0..*times).map(move |n| line.replace('#', &n.to_string()))
        });
        repeated.collect()
    }

    /// The change of the value under a key.
    pub fn change(&self, key: &str, run: u32) -> String {
        let line = self.change.replace("{k}", key);
        line.replace('@', &run.to_string())
    }
}

/// Samples whose form in payloads and files of Redis, that of Redis 7.0, has no place for all that
/// they hold: what producers have sent.
pub const NOT_WHOLE: &[&str] = &["stream:newer"];

macro_rules! samples {
    ($($kind:ident $key:literal $encoding:literal: $([$times:literal $line:literal])+
        reads $read:literal changes $change:literal $event:literal;)*) => {
        /// All samples: a short and a long value of each type at least.
        pub const SAMPLES: &[Sample] = &[$(Sample {
            kind: ValueType::$kind,
            key: $key,
            made: &[$(($times, $line)),+],
            encoding: $encoding,
            read: $read,
            change: $change,
            event: $event,
        }),*];
    };
}

samples! {
    String "text" "embstr": [1 "SET {k} some-text"]
        reads "GET {k}" changes "APPEND {k} more" "append";
    String "bitmap" "raw": [1 "SETBIT {k} 400000 1"]
        reads "GETBIT {k} 7" changes "SETBIT {k} 20@ 1" "setbit";
    String "hll" "raw": [300 "PFADD {k} item#"]
        reads "GETRANGE {k} 0 3" changes "PFADD {k} more@ other@ third@ fourth@ fifth@" "pfadd";
    Hash "hash" "listpack": [1 "HSET {k} f v n 1"]
        reads "HGETALL {k}" changes "HINCRBY {k} n 5" "hincrby";
    Hash "hash:long" "hashtable": [600 "HSET {k} field# value#"]
        reads "HGET {k} field8" changes "HDEL {k} field@" "hdel";
    Hash "hash:timed" "listpackex": [30 "HSETEX {k} PXAT 4000000000000 FIELDS 1 field# value"]
        reads "HPEXPIRETIME {k} FIELDS 1 field5" changes "HPERSIST {k} FIELDS 1 field@" "hpersist";
    Hash "hash:long-timed" "hashtable":
        [600 "HSET {k} field# value#"] [30 "HPEXPIREAT {k} 4000000000000 FIELDS 1 field#"]
        reads "HPEXPIRETIME {k} FIELDS 1 field5" changes "HPERSIST {k} FIELDS 1 field@" "hpersist";
    List "list" "listpack": [1 "RPUSH {k} a b c"]
        reads "LRANGE {k} 0 -1" changes "RPUSH {k} d" "rpush";
    List "list:long" "quicklist": [300 "RPUSH {k} item-of-a-long-list-number-#-with-some-words-behind"]
        reads "LINDEX {k} 150" changes "LSET {k} @ other" "lset";
    Set "set" "listpack": [1 "SADD {k} a b c"]
        reads "SMEMBERS {k}" changes "SADD {k} more@" "sadd";
    Set "set:long" "hashtable": [300 "SADD {k} member#"]
        reads "SISMEMBER {k} member3" changes "SREM {k} member@" "srem";
    Set "set:timed" "listpackex": [1 "SADD {k} a b c"] [1 "SPEXPIREAT {k} 4000000000000 MEMBERS 2 a b"]
        reads "SPEXPIRETIME {k} MEMBERS 1 a" changes "SADD {k} more@" "sadd";
    Set "set:long-timed" "hashtable":
        [300 "SADD {k} member#"] [300 "SPEXPIREAT {k} 4000000000000 MEMBERS 1 member#"]
        reads "SPEXPIRETIME {k} MEMBERS 1 member5" changes "SPERSIST {k} MEMBERS 1 member@" "spersist";
    Zset "zset" "listpack": [1 "ZADD {k} 1 a 2 b 3.5 c"]
        reads "ZRANGE {k} 0 -1" changes "ZINCRBY {k} 2 b" "zincr";
    Zset "zset:long" "skiplist": [300 "ZADD {k} # member#"]
        reads "ZSCORE {k} member9" changes "ZREM {k} member@" "zrem";
    Zset "geo" "listpack": [1 "GEOADD {k} 13.361389 38.115556 Palermo 15.087269 37.502669 Catania"]
        reads "GEODIST {k} Palermo Catania" changes "GEOADD {k} 2.35 48.85 place@" "zadd";
    Stream "stream" "stream": [3 "XADD {k} #-1 field value"]
        reads "XRANGE {k} - +" changes "XADD {k} 9-@ more fields" "xadd";
    Stream "stream:groups" "stream":
        [300 "XADD {k} #-1 field value#"] [1 "XGROUP CREATE {k} g 0"]
        [1 "XREADGROUP GROUP g c COUNT 50 STREAMS {k} >"]
        reads "XPENDING {k} g" changes "XDELEX {k} DELREF IDS 1 1@-1" "xdel";
    Stream "stream:newer" "stream":
        [1 "XADD {k} * first entry"] [1 "XCFGSET {k} IDMP-MAXSIZE 50"]
        [20 "XADD {k} IDMP producer iid# * field value"] [1 "XGROUP CREATE {k} g 0"]
        [1 "XREADGROUP GROUP g c COUNT 5 STREAMS {k} >"]
        reads "XLEN {k}" changes "XADD {k} IDMP producer other@ * field value" "xadd";
    Json "json" "raw": [1 "JSON.SET {k} $ {\"n\":1,\"list\":[1,2.5,null,true,\"text\"],\"in\":{}}"]
        reads "JSON.GET {k} $" changes "JSON.NUMINCRBY {k} $.n 2" "json.numincrby";
    Json "json:long" "raw":
        [1 "JSON.SET {k} $ {\"list\":[],\"in\":{}}"]
        [300 "JSON.ARRAPPEND {k} $.list \"item-of-a-long-document-number-#\""]
        [300 "JSON.SET {k} $.in.member# {\"number\":#}"]
        reads "JSON.GET {k} $.in.member7.number"
        changes "JSON.NUMINCRBY {k} $.in.member8.number 1" "json.numincrby";
    SortedInt "ints" "packed": [1 "SIADD {k} 5 1 18446744073709551615"]
        reads "SIRANGE {k} 0 10" changes "SIADD {k} 10@" "siadd";
    SortedInt "ints:long" "rows": [300 "SIADD {k} #00"]
        reads "SIRANGEBYVALUE {k} 1000 2000" changes "SIREM {k} @00" "sirem";
    Bloom "bloom" "raw": [5 "BF.ADD {k} item#"]
        reads "BF.EXISTS {k} item3" changes "BF.ADD {k} more@" "bf.add";
    Bloom "bloom:long" "raw": [1 "BF.RESERVE {k} 0.001 5000"] [300 "BF.ADD {k} item#"]
        reads "BF.MEXISTS {k} item3 other" changes "BF.INSERT {k} ITEMS more@ other@" "bf.insert";
    Bloom "bloom:chain" "raw": [1 "BF.RESERVE {k} 0.01 20 EXPANSION 3"] [300 "BF.ADD {k} item#"]
        reads "BF.INFO {k}" changes "BF.MADD {k} more@ other@" "bf.madd";
    Cuckoo "cuckoo" "raw": [1 "CF.RESERVE {k} 100"] [5 "CF.ADD {k} item#"]
        reads "CF.COUNT {k} item3" changes "CF.ADD {k} more@" "cf.add";
    Cuckoo "cuckoo:long" "raw": [1 "CF.RESERVE {k} 200"] [700 "CF.ADD {k} item#"]
        reads "CF.MEXISTS {k} item3 other" changes "CF.DEL {k} item@" "cf.del";
    CountMinSketch "sketch" "raw": [1 "CMS.INITBYDIM {k} 20 3"] [5 "CMS.INCRBY {k} item# 2"]
        reads "CMS.QUERY {k} item3" changes "CMS.INCRBY {k} item1 3" "cms.incrby";
    CountMinSketch "sketch:long" "raw": [1 "CMS.INITBYPROB {k} 0.001 0.01"] [300 "CMS.INCRBY {k} item# 2"]
        reads "CMS.INFO {k}" changes "CMS.INCRBY {k} item1 3 more@ 1" "cms.incrby";
    TopK "top" "raw": [1 "TOPK.RESERVE {k} 3"] [5 "TOPK.ADD {k} item#"]
        reads "TOPK.LIST {k}" changes "TOPK.INCRBY {k} item1 300" "topk.incrby";
    TopK "top:long" "raw": [1 "TOPK.RESERVE {k} 50 200 5 0.9"] [300 "TOPK.INCRBY {k} item# 5"]
        reads "TOPK.QUERY {k} item3" changes "TOPK.INCRBY {k} item1 300" "topk.incrby";
    TDigest "digest" "raw": [1 "TDIGEST.CREATE {k} COMPRESSION 10"] [5 "TDIGEST.ADD {k} # 1.5"]
        reads "TDIGEST.MAX {k}" changes "TDIGEST.ADD {k} 100@" "tdigest.add";
    TDigest "digest:long" "raw": [1 "TDIGEST.CREATE {k} COMPRESSION 200"] [300 "TDIGEST.ADD {k} # 1# 2# 0.5"]
        reads "TDIGEST.QUANTILE {k} 0.5" changes "TDIGEST.ADD {k} 100@" "tdigest.add";
}
