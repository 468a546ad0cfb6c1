//! The values of `$name` in a template: few keys, and edge cases.
//!
//! Numbers that would make either server allocate hundreds of megabytes are left out; the
//! `hostile` tests send them.

/// Number of databases.
pub const DATABASES: i64 = 3;

/// Keys per type: `s` strings, `b` bits, `h` hashes, `l` lists, `e` sets, `z`
/// sorted sets, `m` streams.
const LETTERS: [char; 7] = ['s', 'b', 'h', 'l', 'e', 'z', 'm'];

/// A Unix time far in the future, beyond any relative expiry.
const FAR_SECONDS: i64 = 4_000_000_000;

fn one<'a>(rng: &mut fastrand::Rng, from: &[&'a str]) -> &'a str {
    from[rng.usize(..from.len())]
}

/// An argument that is rarely valid.
pub fn junk(rng: &mut fastrand::Rng) -> Vec<u8> {
    let all = [
        "",
        "foo",
        "-1",
        "1.5",
        "9223372036854775808",
        " 1",
        "+1",
        "01",
        "1 ",
        "nan",
        "NX",
        "#",
        "*",
    ];
    one(rng, &all).as_bytes().to_vec()
}

fn key(rng: &mut fastrand::Rng, letter: char) -> Vec<u8> {
    match rng.u8(..60) {
        0 => Vec::new(),
        1 => vec![0, 0xff, b'\r', b'\n'],
        _ => format!("{letter}:{}", rng.u8(..4)).into_bytes(),
    }
}

fn any_key(rng: &mut fastrand::Rng) -> Vec<u8> {
    let letter = LETTERS[rng.usize(..LETTERS.len())];
    key(rng, letter)
}

/// The ID of an entry, from a small range.
fn stream_id(rng: &mut fastrand::Rng) -> String {
    match rng.u8(..40) {
        0 => one(
            rng,
            &[
                "0-0",
                "0-*",
                "foo",
                "",
                "1-",
                "-1",
                "1-1-1",
                "18446744073709551615-18446744073709551615",
                "18446744073709551616",
            ],
        )
        .to_owned(),
        1..=10 => rng.u8(..25).to_string(),
        _ => format!("{}-{}", rng.u8(18..24), rng.u8(..4)),
    }
}

/// A bound of a range of IDs.
fn stream_bound(rng: &mut fastrand::Rng, open: &str) -> String {
    match rng.u8(..10) {
        0..=4 => open.to_owned(),
        5 => format!("({}", stream_id(rng)),
        _ => stream_id(rng),
    }
}

/// Mostly a key of the family's own type.
fn own_key(rng: &mut fastrand::Rng, letter: char) -> Vec<u8> {
    // 'x' is any type that SORT reads.
    let letter = if letter == 'x' {
        ['l', 'e', 'z'][rng.usize(..3)]
    } else {
        letter
    };
    if rng.u8(..100) < 92 {
        key(rng, letter)
    } else {
        any_key(rng)
    }
}

fn value(rng: &mut fastrand::Rng) -> Vec<u8> {
    let fixed = [
        "",
        "a",
        "foo",
        "hello world",
        "10",
        "-5",
        "0",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775806",
        "3.5",
        "1e3",
        " 7",
        "007",
        "-0",
        "1.0",
        "ohmytext",
        "mynewtext",
        "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH",
        "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHI",
    ];
    match rng.u16(..1000) {
        0..=4 => vec![b'x'; rng.usize(16_000..20_000)],
        5..=30 => vec![b'y'; 300],
        31..=60 => vec![0, 1, 0xff, b'\r', b'\n', 0x80],
        61..=90 => (0..rng.usize(1..12)).map(|_| rng.u8(..)).collect(),
        _ => one(rng, &fixed).as_bytes().to_vec(),
    }
}

/// Fields and members from a small set, so that they repeat.
fn member(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..100) {
        0..=2 => Vec::new(),
        3..=5 => vec![0xff, 1, b'\r', b'\n'],
        6..=8 => vec![b'q'; 100],
        9 => vec![b'r'; 1500],
        10..=45 => rng.u8(..6).to_string().into_bytes(),
        46..=52 => one(
            rng,
            &[
                "-1",
                "1.0",
                "3.25",
                "9223372036854775807",
                "-9223372036854775808",
                "01",
                "1e2",
            ],
        )
        .as_bytes()
        .to_vec(),
        _ => format!("m{}", rng.u8(..10)).into_bytes(),
    }
}

/// Members from a larger set, to outgrow a packed collection.
fn wide_member(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..10) {
        0..=3 => rng.u16(..300).to_string().into_bytes(),
        4..=7 => format!("m{}", rng.u16(..300)).into_bytes(),
        _ => member(rng),
    }
}

fn index(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "9223372036854775807",
        "-9223372036854775808",
        "2147483648",
        "-2147483649",
        "9223372036854775808",
        "foo",
        "",
        "1.5",
        "100",
        "-100",
    ];
    match rng.u8(..10) {
        0 => one(rng, &edges).to_string(),
        _ => rng.i16(-6..12).to_string(),
    }
}

/// Counts for commands whose reply grows with a negative count: no large negative ones.
fn count(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "9223372036854775807",
        "-9223372036854775808",
        "foo",
        "",
        "100",
        "0",
    ];
    match rng.u8(..10) {
        0 => one(rng, &edges).to_string(),
        1 => rng.i16(-5..0).to_string(),
        _ => rng.i16(0..7).to_string(),
    }
}

fn integer(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "-9223372036854775809",
        "4611686018427387904",
        "foo",
        "",
        " 1",
        "1 ",
        "+1",
        "01",
        "-0",
        "1.0",
    ];
    match rng.u8(..6) {
        0 => one(rng, &edges).to_string(),
        _ => rng.i32(-20..20).to_string(),
    }
}

/// Nothing out of range: the oracle leaves `errno` set, and a later SORT reports an error.
fn float(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "0.1",
        "-0.1",
        "1e3",
        "1e-3",
        "inf",
        "-inf",
        "nan",
        "",
        "foo",
        " 1",
        "3.0",
        "1e17",
        "123456789.5",
        "5.0e3",
        "-0",
    ];
    match rng.u8(..4) {
        0 => one(rng, &edges).to_string(),
        _ => (f64::from(rng.i16(-64..64)) / 8.0).to_string(),
    }
}

fn score(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "inf",
        "-inf",
        "+inf",
        "-0",
        "0",
        "nan",
        "foo",
        "",
        "1e20",
        "0.1",
        "-1e-5",
        "1e300",
        "9007199254740993",
        "17179869184.5",
        "1e2",
    ];
    match rng.u8(..8) {
        0 => one(rng, &edges).to_string(),
        _ => (f64::from(rng.i8(-16..16)) / 4.0).to_string(),
    }
}

/// Longitude and latitude: two arguments. No two members are at the same place by chance.
fn position(rng: &mut fastrand::Rng, out: &mut Vec<Vec<u8>>) {
    let invalid = [
        ["181", "0"],
        ["1", "-86"],
        ["foo", "1"],
        ["1", "nan"],
        ["-inf", "1"],
        ["", ""],
    ];
    let mut spread = |half: f64| (rng.f64() * 2.0 - 1.0) * half;
    let (longitude, latitude) = (spread(180.0), spread(85.05));
    let (little, less) = (spread(0.02), spread(0.000_01));
    let pair = match rng.u8(..20) {
        0 => return out.extend(invalid[rng.usize(..invalid.len())].map(|arg| arg.into())),
        1..=9 => [13.36 + little, 38.11 + less],
        10 => [179.97 + little, latitude],
        11 => [-179.97 - less, 85.05 + less],
        12 => [longitude, -85.05 - less],
        _ => [longitude, latitude],
    };
    out.extend(pair.map(|degrees| degrees.to_string().into_bytes()));
}

/// The size of an area, in any unit.
fn radius(rng: &mut fastrand::Rng) -> String {
    let edges = ["0", "-1", "foo", "", "inf", "nan", "1e30", "20000"];
    match rng.u8(..8) {
        0 => one(rng, &edges).to_string(),
        _ => 10f64.powf(rng.f64() * 7.0 - 1.0).to_string(),
    }
}

fn score_bound(rng: &mut fastrand::Rng) -> String {
    match rng.u8(..10) {
        0 => "-inf".into(),
        1 => "+inf".into(),
        2..=3 => format!("({}", score(rng)),
        4 => one(rng, &["(inf", "(-inf", "(", "nan", "foo", "", "((1"]).into(),
        _ => score(rng),
    }
}

fn lex_bound(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.u8(..10) {
        0..=1 => b"-".to_vec(),
        2..=3 => b"+".to_vec(),
        4 => one(rng, &["m1", "", "foo", "[", "(", "(+", "[-"])
            .as_bytes()
            .to_vec(),
        other => {
            let mut bound = vec![if other % 2 == 0 { b'[' } else { b'(' }];
            bound.extend(member(rng));
            bound
        }
    }
}

/// A TTL in seconds, from a wide range, so that two are rarely close to each other.
fn seconds(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "0",
        "-1",
        "-100000",
        "foo",
        "",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775",
        "9223372036854776",
        "1.5",
    ];
    match rng.u8(..7) {
        0 => one(rng, &edges).to_string(),
        _ => rng.u32(100..1_000_000).to_string(),
    }
}

fn milliseconds(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "0",
        "-1",
        "foo",
        "",
        "9223372036854775807",
        "-9223372036854775808",
    ];
    match rng.u8(..7) {
        0 => one(rng, &edges).to_string(),
        _ => rng.u64(100_000..1_000_000_000).to_string(),
    }
}

fn at_seconds(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "0",
        "-1",
        "1",
        "1500000000",
        "foo",
        "9223372036854775807",
        "9223372036854775",
        "9223372036854776",
    ];
    match rng.u8(..4) {
        0 => one(rng, &edges).to_string(),
        _ => (FAR_SECONDS + rng.i64(0..50)).to_string(),
    }
}

fn at_milliseconds(rng: &mut fastrand::Rng) -> String {
    let edges = [
        "0",
        "-1",
        "1",
        "1500000000000",
        "foo",
        "9223372036854775807",
    ];
    match rng.u8(..4) {
        0 => one(rng, &edges).to_string(),
        _ => (FAR_SECONDS * 1000 + rng.i64(0..50)).to_string(),
    }
}

fn pattern(rng: &mut fastrand::Rng) -> &'static str {
    one(
        rng,
        &[
            "*", "s:*", "?:1", "[hlz]:*", "[^s]:*", "h:[0-2]", "*:3", "m?", "m[1-5]*", "\\*", "",
            "nope", "m*", "*1*", "[", "s:[", "[a-", "*:**", "h:\\1", "?", "q*",
        ],
    )
}

/// A number of keys and then about as many keys.
fn counted_keys(rng: &mut fastrand::Rng, letter: char, out: &mut Vec<Vec<u8>>) {
    let keys = rng.usize(1..=3);
    let said = match rng.u8(..25) {
        0 => integer(rng),
        1 => "0".into(),
        2 => (keys + 1).to_string(),
        _ => keys.to_string(),
    };
    out.push(said.into_bytes());
    for _ in 0..keys {
        out.push(own_key(rng, letter));
    }
}

/// Payloads of the oracle, of each type and way to hold it.
const PAYLOADS: &str = include_str!("../../fixtures/rdb-payloads.tsv");
/// Longer ones, as hexadecimal digits, are left out.
const MAX_PAYLOAD_DIGITS: usize = 2000;

/// A value as DUMP returns it, now and then with a byte that is wrong.
fn payload(rng: &mut fastrand::Rng) -> Vec<u8> {
    let lines = PAYLOADS.lines().filter(|line| !line.starts_with('#'));
    let payloads = lines.filter_map(|line| line.split('\t').nth(2));
    let short: Vec<&str> = payloads
        .filter(|digits| digits.len() <= MAX_PAYLOAD_DIGITS)
        .collect();
    let digits = one(rng, &short).as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let mut payload: Vec<u8> = digits.map(byte).collect();
    if rng.u8(..10) == 0 {
        let at = rng.usize(..payload.len());
        payload[at] ^= 1;
    }
    payload
}

const SCRIPTS: [&str; 10] = [
    "return redis.call('GET',KEYS[1])",
    "return redis.call('SET',KEYS[1],ARGV[1])",
    "return redis.pcall('RPUSH',KEYS[1],ARGV[1])",
    "redis.call('SET',KEYS[1],ARGV[1]) return redis.error_reply('ERR no')",
    "return {1,2.7,'a',{false,true},redis.status_reply('fine')}",
    "return #KEYS + #ARGV",
    "return tonumber(ARGV[1])",
    "return redis.call('TYPE',KEYS[1])['ok']",
    "return redis.sha1hex(ARGV[1])",
    "return nil",
];

/// Of the first two scripts, and of none.
const SHAS: [&str; 3] = [
    "620cd258c2c9c88c9d10db67812ccf663d96bdc6",
    "CF63A54C34E159E75E5A3FE4794BB2EA636EE005",
    "0000000000000000000000000000000000000000",
];

/// Each with one function: the order of several is open.
const LIBRARIES: [&str; 4] = [
    "#!lua name=one\nredis.register_function('set', function(keys, args) return redis.call('SET', keys[1], args[1]) end)",
    "#!lua name=two\nredis.register_function{function_name='get', callback=function(keys) return redis.call('GET', keys[1]) end, flags={'no-writes'}}",
    "#!lua name=three\nreturn 1",
    "return 1",
];

/// Appends what `$name` stands for: nearly always one argument.
pub fn draw(name: &str, rng: &mut fastrand::Rng, letter: char, out: &mut Vec<Vec<u8>>) {
    let drawn: Vec<u8> = match name {
        "k" => own_key(rng, letter),
        "K" => any_key(rng),
        "nk" => return counted_keys(rng, letter, out),
        "at" => return position(rng, out),
        // Separate keys: lexicographic ranges are only defined if all scores are equal.
        "y" => match rng.u8(..12) {
            0 => b"w:0".to_vec(),
            _ => format!("y:{}", rng.u8(..3)).into_bytes(),
        },
        // Separate keys: other commands would write into the registers, and the reply for a
        // corrupt HyperLogLog depends on how much of it is read.
        "p" => match rng.u8(..20) {
            0 => format!("w:{}", rng.u8(..2)).into_bytes(),
            _ => format!("p:{}", rng.u8(..4)).into_bytes(),
        },
        // Separate keys: LCS takes time proportional to the product of the lengths.
        "c" => format!("c:{}", rng.u8(..3)).into_bytes(),
        "set" => {
            let letter = if rng.u8(..10) == 0 { 'e' } else { letter };
            own_key(rng, letter)
        }
        "v" => value(rng),
        "m" => member(rng),
        "M" => wide_member(rng),
        "i" => index(rng).into_bytes(),
        "times" => match index(rng) {
            text if text == i64::MIN.to_string() => b"0".to_vec(),
            text => text.into_bytes(),
        },
        "count" => count(rng).into_bytes(),
        "n" => integer(rng).into_bytes(),
        // The oracle saturates the minimum integer at the wrong end, because the difference
        // overflows.
        "bn" => match integer(rng) {
            text if text == i64::MIN.to_string() => b"-77".to_vec(),
            text => text.into_bytes(),
        },
        "float" => float(rng).into_bytes(),
        "score" => score(rng).into_bytes(),
        "zb" => score_bound(rng).into_bytes(),
        "lex" => lex_bound(rng),
        "ex" => seconds(rng).into_bytes(),
        "px" => milliseconds(rng).into_bytes(),
        "exat" => at_seconds(rng).into_bytes(),
        "pxat" => at_milliseconds(rng).into_bytes(),
        "short" => rng.u8(1..8).to_string().into_bytes(),
        "pat" => pattern(rng).into(),
        "db" => match rng.u8(..20) {
            0 => one(rng, &["-1", "16", "foo", "", "99999999999999999999"]).into(),
            _ => rng.i64(0..DATABASES).to_string().into_bytes(),
        },
        "offset" => match rng.u8(..10) {
            0 => one(
                rng,
                &[
                    "-1",
                    "536870912",
                    "9223372036854775807",
                    "4294967296",
                    "foo",
                    "",
                ],
            )
            .into(),
            _ => rng.u16(..300).to_string().into_bytes(),
        },
        "far" => rng.u32(3_000..120_000).to_string().into_bytes(),
        "bit" => match rng.u8(..12) {
            0 => one(
                rng,
                &["-1", "4294967296", "9223372036854775807", "foo", "", "1.5"],
            )
            .into(),
            1..=2 => rng.u32(..700_000).to_string().into_bytes(),
            _ => rng.u16(..120).to_string().into_bytes(),
        },
        "width" => one(
            rng,
            &[
                "u1", "u8", "u63", "u64", "i1", "i8", "i64", "i65", "u0", "i5", "u16", "i16", "u7",
                "i33", "x8", "u", "8", "",
            ],
        )
        .into(),
        "place" => match rng.u8(..12) {
            0 => one(rng, &["-1", "#-1", "4294967296", "foo", "", "#", "#foo"]).into(),
            1..=4 => format!("#{}", rng.u8(..20)).into_bytes(),
            5 => rng.u32(..300_000).to_string().into_bytes(),
            _ => rng.u8(..100).to_string().into_bytes(),
        },
        "by" => one(
            rng,
            &[
                "s:*", "h:*->0", "h:*->m1", "w", "nosort", "s:*->", "*", "h:*->",
            ],
        )
        .into(),
        "get" => one(rng, &["#", "s:*", "h:*->0", "h:*->m1", "foo", "h:*->", "*"]).into(),
        "sid" => stream_id(rng).into_bytes(),
        // Mostly above the previous IDs.
        "up" => match rng.u8(..4) {
            0 => stream_id(rng).into_bytes(),
            _ => format!("{}-*", rng.u8(20..24)).into_bytes(),
        },
        "from" => stream_bound(rng, "-").into_bytes(),
        "to" => stream_bound(rng, "+").into_bytes(),
        "len" => match rng.u8(..12) {
            0 => one(rng, &["-1", "foo", "", "9223372036854775807"]).into(),
            _ => rng.u8(..12).to_string().into_bytes(),
        },
        "g" => format!("g{}", rng.u8(..2)).into_bytes(),
        "w" => format!("w{}", rng.u8(..3)).into_bytes(),
        "" => b"$".to_vec(),
        _ => text(name, rng),
    };
    out.push(drawn);
}

/// What is not made of parts: scripts, payloads.
fn text(name: &str, rng: &mut fastrand::Rng) -> Vec<u8> {
    match name {
        // Seconds that a blocking command waits: few of them.
        "wait" => match rng.u8(..12) {
            0 => one(rng, &["-1", "foo", ""]).into(),
            _ => one(rng, &["0.001", "0.004", "0.01"]).into(),
        },
        "payload" => payload(rng),
        "script" => one(rng, &SCRIPTS).into(),
        "sha" => one(rng, &SHAS).into(),
        "radius" => radius(rng).into_bytes(),
        "unit" => one(rng, &["m", "km", "KM", "ft", "mi", "Mi", "foo"]).into(),
        "library" => one(rng, &LIBRARIES).into(),
        _ => panic!("no pool ${name}"),
    }
}
