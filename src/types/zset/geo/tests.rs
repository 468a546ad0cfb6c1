//! Searches compared with one that looks at every member of the cells.

use super::*;
use crate::base::geohash::Shape;
use crate::base::time::UnixMs;
use crate::storage::{DbIndex, Engine, StorageConfig, Txn};
use crate::types::zset::{AddRule, Direction, Each, Edit};

const DB: DbIndex = DbIndex(0);
const KEY: &[u8] = b"key";

/// Scores and members of what is in the area, in the order of the search.
fn one_by_one(zset: &Zset, view: &mut View, area: &Area) -> Vec<(f64, Vec<u8>)> {
    let bound = |score: f64, exclusive: bool| ScoreBound { score, exclusive };
    let mut found = Vec::new();
    for (first, beyond) in area.cells() {
        let span = Span::of_scores(bound(first, false), bound(beyond, true));
        let each: Each<'_> = &mut |score, member| {
            if area.distance_m(Position::from_score(score)).is_some() {
                found.push((score, member.to_vec()));
            }
            Ok(())
        };
        zset.walk(view, &span, Direction::Forward, 0, u64::MAX, each)
            .unwrap();
    }
    found
}

fn random_area(rng: &mut fastrand::Rng, near: Position) -> Area {
    let length = |rng: &mut fastrand::Rng| 10f64.powf(rng.f64() * 4.5 + 2.5);
    let shape = match rng.u8(..3) {
        0 => Shape::Circle {
            radius: length(rng),
        },
        1 => Shape::Rectangle {
            width: length(rng),
            height: length(rng),
        },
        _ => {
            let size = 10f64.powf(rng.f64() * 2.0 - 1.0);
            let corner = |_| {
                let longitude = near.longitude + (rng.f64() - 0.5) * size;
                let latitude = near.latitude + (rng.f64() - 0.5) * size;
                Position::new(longitude.clamp(-180.0, 180.0), latitude.clamp(-85.0, 85.0))
            };
            return Area::polygon((0..4).filter_map(corner).collect());
        }
    };
    Area::around(near, shape, 1.0)
}

#[test]
fn a_search_finds_what_its_cells_have_in_the_area() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for packed_max_entries in [0, 400] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = StorageConfig::for_tests(dir.path().join("db"));
        config.packed_max_entries = packed_max_entries;
        config.packed_max_bytes = 1 << 20;
        let mut txn = Txn::new(Engine::open(config).unwrap());
        txn.begin(UnixMs(1)).unwrap();
        txn.start_command();
        let mut edit = Edit::open(&mut txn, DB, KEY).unwrap();
        let mut total = 0;
        for n in 0..300 {
            // Close to each other, around the edge of the map, and scores of no position.
            let position = match n % 4 {
                0 => Position::new(15.0 + rng.f64(), 47.0 + rng.f64()),
                1 => Position::new(179.9 - 359.8 * f64::from(n % 3 / 2), rng.f64() * 2.0),
                2 => Position::new(rng.f64() * 20.0, 84.0 + rng.f64()),
                _ => Position::new(rng.f64() * 360.0 - 180.0, rng.f64() * 170.0 - 85.0),
            };
            let score = match n % 50 {
                49 => rng.f64() * 1e16 - 1e15,
                48 => position.unwrap().to_score() + 0.5,
                _ => position.unwrap().to_score(),
            };
            let member = format!("member{n}");
            edit.add(&mut txn, score, member.as_bytes(), AddRule::default())
                .unwrap();
        }
        edit.save(&mut txn).unwrap();
        for round in 0..600 {
            // First what is pending, then what is stored, and then both.
            if round == 200 || round == 400 {
                txn.commit().unwrap();
                txn.begin(UnixMs(1)).unwrap();
                txn.start_command();
            }
            if round == 400 {
                let mut edit = Edit::open(&mut txn, DB, KEY).unwrap();
                for n in (0..300).step_by(3) {
                    let place = Position::new(15.5, 47.0 + f64::from(n) / 300.0).unwrap();
                    let member = format!("member{n}");
                    let score = place.to_score();
                    edit.add(&mut txn, score, member.as_bytes(), AddRule::default())
                        .unwrap();
                }
                edit.save(&mut txn).unwrap();
            }
            let near = match rng.u8(..4) {
                0 => Position::new(15.0 + rng.f64(), 47.0 + rng.f64()),
                1 => Position::new(180.0 - rng.f64(), rng.f64()),
                2 => Position::new(rng.f64() * 20.0, 85.0),
                _ => Position::new(rng.f64() * 360.0 - 180.0, rng.f64() * 170.0 - 85.0),
            };
            let area = random_area(&mut rng, near.unwrap());
            let zset = Zset::open(&mut txn, DB, KEY).unwrap().unwrap();
            let mut found = Vec::new();
            zset.search(&mut txn, &area, |point| {
                found.push((point.score, point.member.to_vec()));
                Ok(ControlFlow::Continue(()))
            })
            .unwrap();
            let expected = one_by_one(&zset, &mut txn, &area);
            assert_eq!(found, expected, "seed {seed}: {area:?}");
            total += found.len();
        }
        assert!(total > 1000, "{total}");
    }
}
