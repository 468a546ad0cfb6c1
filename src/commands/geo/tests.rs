//! The commands of positions. The replies are those of Redis 7, of BYPOLYGON those of Valkey 9.

use crate::base::geohash::Position;
use crate::exec::testing::{Client, check};
use crate::resp::Value;

const SICILY: &str = "geoadd Sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";

fn sicily() -> Client {
    let mut client = Client::new();
    assert_eq!(client.run(SICILY), Value::Int(2));
    client
}

#[test]
fn positions_distances_and_geohash_strings() {
    let mut client = sicily();
    let steps = [
        (
            "geopos Sicily Palermo none",
            "[[13.361389338970184 38.1155563954963] nil]",
        ),
        ("geohash Sicily Palermo none", "[sqc8b49rny0 nil]"),
        ("geodist Sicily Palermo Catania", "166274.1516"),
        ("geodist Sicily Palermo Catania Km", "166.2742"),
        ("geodist Sicily Palermo Catania mi", "103.3182"),
        ("geodist Sicily Palermo Catania ft", "545518.8700"),
        ("geodist Sicily Palermo none", "nil"),
        ("geodist none Palermo Catania", "nil"),
        ("geodist Sicily Palermo Catania m m", "-ERR syntax error"),
        (
            "geodist Sicily Palermo Catania foo",
            "-ERR unsupported unit provided. please use M, KM, FT, MI",
        ),
        ("geopos none a b", "[nil nil]"),
        ("geohash Sicily", "[]"),
        ("zscore Sicily Palermo", "3479099956230698"),
    ];
    check(&mut client, &steps);
    client.run("hello 3");
    let shown = client.run("geopos Sicily Palermo");
    let Value::Array(all) = shown else {
        panic!("{shown:?}");
    };
    let doubles = [13.361389338970184, 38.1155563954963].map(Value::Double);
    assert_eq!(all, [Value::Array(doubles.to_vec())]);
}

/// The effect is a ZADD of what has changed.
#[test]
fn geoadd_changes_what_its_options_allow() {
    let mut client = sicily();
    let logged = client.logged();
    assert_eq!(
        logged.last().map(String::as_str),
        Some("ZADD Sicily 3479099956230698 Palermo 3479447370796909 Catania"),
        "{logged:?}"
    );
    let steps = [
        ("geoadd Sicily nx 1 1 Palermo 2 2 Enna", "1"),
        ("geoadd Sicily xx ch 1 1 Palermo 2 2 none", "1"),
        ("geoadd Sicily xx 3 3 Palermo", "0"),
        ("geoadd Sicily ch 3 3 Palermo", "0"),
        ("geoadd Sicily nx xx 1 1 a", "-ERR syntax error"),
        ("geoadd Sicily 1 1 a 2 2", "-ERR syntax error"),
        ("geoadd Sicily nx ch ch", "-ERR syntax error"),
        (
            "geoadd Sicily 1 1 a 181 2 b",
            "-ERR invalid longitude,latitude pair 181.000000,2.000000",
        ),
        ("geoadd Sicily x 1 a", "-ERR value is not a valid float"),
        ("zcard Sicily", "3"),
    ];
    check(&mut client, &steps);
    let logged = client.logged();
    assert!(logged.iter().all(|row| row.starts_with("ZADD Sicily ")));
    assert_eq!(logged.len(), 4, "{logged:?}");
}

#[test]
fn searches_by_circle_and_rectangle() {
    let steps = [
        (
            "geosearch Sicily fromlonlat 15 37 byradius 200 km asc",
            "[Catania Palermo]",
        ),
        (
            "geosearch Sicily fromlonlat 15 37 byradius 200 km desc count 1",
            "[Palermo]",
        ),
        (
            "geosearch Sicily fromlonlat 15 37 byradius 200 km count 1",
            "[Catania]",
        ),
        (
            "geosearch Sicily frommember Palermo bybox 400 400 km asc withdist withhash withcoord",
            "[[Palermo 0.0000 3479099956230698 [13.361389338970184 38.1155563954963]] \
             [Catania 166.2742 3479447370796909 [15.087267458438873 37.50266842333162]]]",
        ),
        (
            "geosearch Sicily fromlonlat 15 37 bybox 1 1 mi asc count 9",
            "[]",
        ),
        (
            "georadius Sicily 15 37 100 km withdist",
            "[[Catania 56.4413]]",
        ),
        ("georadius_ro Sicily 15 37 100 km", "[Catania]"),
        (
            "georadiusbymember Sicily Catania 200 km desc",
            "[Palermo Catania]",
        ),
        (
            "georadiusbymember_ro Sicily Catania 200 km count 1",
            "[Catania]",
        ),
        ("geosearch none frommember a byradius 1 km asc", "[]"),
        ("georadiusbymember none a x y", "[]"),
    ];
    check(&mut sicily(), &steps);
}

#[test]
fn searches_refuse_what_redis_refuses() {
    let steps = [
        (
            "geosearch Sicily frommember x byradius 1 km asc",
            "-ERR could not decode requested zset member",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 byradius x km asc",
            "-ERR need numeric radius",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 byradius -1 km asc",
            "-ERR radius cannot be negative",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 bybox x 1 km asc",
            "-ERR need numeric width",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 bybox 1 x km asc",
            "-ERR need numeric height",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 bybox 1 -1 km asc",
            "-ERR height or width cannot be negative",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 byradius 1 km any",
            "-ERR the ANY argument requires COUNT argument",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 byradius 1 km count 0",
            "-ERR COUNT must be > 0",
        ),
        (
            "GeoSearch Sicily fromlonlat 1 1 asc asc asc",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for GeoSearch",
        ),
        (
            "geosearch Sicily byradius 1 km asc asc",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 frommember Palermo byradius 1 km",
            "-ERR syntax error",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 byradius 1 km bybox 1 1 km",
            "-ERR syntax error",
        ),
        (
            "geosearch Sicily fromlonlat 1 1 byradius 1 km storedist",
            "-ERR syntax error",
        ),
        ("georadius_ro Sicily 1 1 1 km store a", "-ERR syntax error"),
        (
            "georadius Sicily 1 1 1 km store a withdist",
            "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and \
             WITHCOORD options",
        ),
        (
            "geosearchstore d Sicily fromlonlat 1 1 byradius 1 km withhash",
            "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        (
            "geosearch s fromlonlat 1 1 byradius x km asc",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
    ];
    let mut client = sicily();
    client.run("set s 1");
    check(&mut client, &steps);
}

#[test]
fn results_are_stored_as_positions_or_distances() {
    let steps = [
        (
            "geosearchstore d Sicily frommember Palermo byradius 200 km",
            "2",
        ),
        (
            "zrange d 0 -1 withscores",
            "[Palermo 3479099956230698 Catania 3479447370796909]",
        ),
        ("georadiusbymember Sicily Palermo 200 km storedist d", "2"),
        (
            "geopos d Palermo",
            "[[-179.99999731779099 -85.05112751263943]]",
        ),
        ("zrangebyscore d 166.27 166.28", "[Catania]"),
        // The last one counts, and its key is locked.
        (
            "georadius Sicily 15 37 200 km store a storedist b store c count 1",
            "1",
        ),
        ("exists a b c", "1"),
        ("zrange c 0 -1", "[Catania]"),
        ("georadius Sicily 0 0 1 m store c", "0"),
        ("exists c", "0"),
        ("geosearchstore d none frommember a byradius 1 km", "0"),
        ("exists d", "0"),
        (
            "command getkeys georadius Sicily 1 1 1 km store a storedist b store c",
            "[Sicily c]",
        ),
        (
            "command getkeys georadius Sicily 1 1 1 km store a storedist b",
            "[Sicily b]",
        ),
        ("command getkeys georadius Sicily 1 1 1 km", "[Sicily]"),
    ];
    let mut client = sicily();
    check(&mut client, &steps);
    client.check();
}

#[test]
fn searches_by_polygon() {
    let triangle = "geosearch Sicily bypolygon 3 10 30 20 30 15 45";
    let steps = [
        (
            format!("{triangle} withdist withcoord"),
            "[[Palermo 369997.5654 [13.361389338970184 38.1155563954963]] \
             [Catania 271790.7291 [15.087267458438873 37.50266842333162]]]",
        ),
        (format!("{triangle} asc count 1"), "[Catania]"),
        (format!("{triangle} bypolygon 3 10 30 11 30 11 31"), "[]"),
        (format!("{triangle} fromlonlat 1 2"), "-ERR syntax error"),
        (
            format!("{triangle} frommember Palermo"),
            "-ERR syntax error",
        ),
        (format!("{triangle} byradius 1 km"), "-ERR syntax error"),
        (
            "geosearch Sicily fromlonlat 1 2 bypolygon 3 10 30 20 30 15 45".into(),
            "-ERR syntax error",
        ),
        (
            "geosearch Sicily bypolygon x 10 30 20 30 15 45".into(),
            "-ERR invalid number of vertices",
        ),
        (
            "geosearch Sicily bypolygon -1 10 30 20 30 15 45".into(),
            "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices",
        ),
        (
            "geosearch Sicily bypolygon 4 10 30 20 30 15 45".into(),
            "-ERR GEOSEARCH BYPOLYGON must have at least 3 vertices",
        ),
        (
            "geosearch none bypolygon 3 10 30 20 30 15 455".into(),
            "-ERR invalid longitude,latitude pair 15.000000,455.000000",
        ),
        (
            "geosearchstore d Sicily bypolygon 3 10 30 20 30 15 45 storedist".into(),
            "2",
        ),
        (
            "zrange d 0 -1 withscores".into(),
            "[Catania 2.717907290776535e+5 Palermo 3.699975653906557e+5]",
        ),
    ];
    let steps: Vec<(&str, &str)> = steps
        .iter()
        .map(|(line, shown)| (&**line, *shown))
        .collect();
    check(&mut sicily(), &steps);
}

/// The budget of the tests is 100 rows, and going beyond it takes a slow-command worker, which
/// there is none of here: a search that walked the whole sorted set would not be answered.
#[test]
fn a_search_reads_the_cells_around_its_area_only() {
    let mut client = Client::new();
    let all = 3000;
    for n in 0..all {
        let (column, row) = (n % 60, n / 60);
        let longitude = f64::from(column) * 5.0 - 150.0;
        let latitude = f64::from(row) * 2.0 - 50.0;
        client.run(&format!("geoadd big {longitude} {latitude} m{n}"));
    }
    let near = "geosearch big frommember m1530 byradius 30 km asc";
    let any = "geosearch big frommember m1530 byradius 30000 km count 7 any";
    for (line, expected) in [(near, 1), (any, 7)] {
        let Value::Array(found) = client.run(line) else {
            panic!("{line}");
        };
        assert_eq!(found.len(), expected, "{line}");
    }
    let mut client = client.on_worker();
    let Value::Array(found) = client.run("geosearch big fromlonlat 0 0 byradius 30000 km asc")
    else {
        panic!("no array");
    };
    assert_eq!(found.len(), 3000);
}

/// All members are found in the order of their distance, by any search that contains them, also
/// if COUNT makes it drop some on the way.
#[test]
fn the_nearest_members_are_kept() {
    let mut client = Client::new().on_worker();
    let mut rng = fastrand::Rng::with_seed(7);
    let centre = Position::new(2.0, 50.0).unwrap();
    let mut all = Vec::new();
    for n in 0..5000 {
        let place = |rng: &mut fastrand::Rng| (rng.f64() - 0.5) * 4.0;
        let (longitude, latitude) = (2.0 + place(&mut rng), 50.0 + place(&mut rng));
        client.run(&format!("geoadd big {longitude} {latitude} m{n}"));
        let stored = Position::from_score(Position::new(longitude, latitude).unwrap().to_score());
        all.push((centre.distance_m(stored), n));
    }
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    for (order, count) in [("asc", 3), ("desc", 2000), ("asc", 5000), ("desc", 700)] {
        let line = format!("geosearch big fromlonlat 2 50 byradius 900 km {order} count {count}");
        let Value::Array(found) = client.run(&line) else {
            panic!("{line}");
        };
        let names = |(_, n): &(f64, u32)| Value::Bulk(format!("m{n}").into_bytes());
        let expected: Vec<Value> = match order {
            "asc" => all.iter().take(count).map(names).collect(),
            _ => all.iter().rev().take(count).map(names).collect(),
        };
        assert_eq!(found, expected, "{line}");
    }
}
