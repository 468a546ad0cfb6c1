//! Positions on the globe as integers of 52 bits, as sorted sets of `GEOADD` hold them for
//! scores, and areas as ranges of such integers.
//!
//! The globe is a grid of 2^26 columns (longitude) and 2^26 rows (latitude). The number of a
//! position interleaves the bits of its column (odd bits) and row (even bits), the highest
//! first, so that the positions of a cell of a coarser grid, of 2^`step` columns and rows, are
//! consecutive numbers. An area is covered by nine such cells: [`Area::cells`].
//!
//! The numbers, the choice of cells and the distances are those of Redis, to the last bit:
//! clients see the order in which cells are searched, and scores are stored. Each formula keeps
//! the order of operations in which Redis evaluates it.

mod bits;
mod frame;

use std::f64::consts::{FRAC_PI_2, PI};

use bits::{deinterleave, interleave};
pub use frame::Frame;

/// Bits per coordinate of a stored position.
const STEP_MAX: u32 = 26;
/// In m. The quadratic mean radius of the earth.
const EARTH_RADIUS_M: f64 = 6372797.560856;
/// In m. Half of the equator in the Mercator projection.
const MERCATOR_MAX_M: f64 = 20037726.37;
const RADIANS: f64 = PI / 180.0;

/// Longitudes and latitudes that can be stored. The projection has no poles.
const LONGITUDES: Interval = Interval::new(-180.0, 180.0);
const LATITUDES: Interval = Interval::new(-85.05112878, 85.05112878);

/// The latitudes of standard geohash strings.
const ALL_LATITUDES: Interval = Interval::new(-90.0, 90.0);
const BASE32: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// All that lies between two coordinates, in degrees, both included.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Interval {
    min: f64,
    max: f64,
}

impl Interval {
    const fn new(min: f64, max: f64) -> Interval {
        Interval { min, max }
    }

    /// The number of the part that holds a coordinate, of 2^`step` equal parts. The upper end
    /// is one beyond the last part.
    fn part_of(self, degrees: f64, step: u32) -> u32 {
        let offset = (degrees - self.min) / (self.max - self.min);
        (offset * (1u64 << step) as f64) as u32
    }

    /// The part with this number, of 2^`step` equal parts.
    fn part(self, number: u32, step: u32) -> Interval {
        let scale = self.max - self.min;
        let begin = |number: u32| {
            let share = f64::from(number) / (1u64 << step) as f64;
            self.min + share * scale
        };
        Interval {
            min: begin(number),
            max: begin(number.wrapping_add(1)),
        }
    }

    fn middle(self) -> f64 {
        (self.min + self.max) / 2.0
    }

    fn contains(self, degrees: f64) -> bool {
        self.min <= degrees && degrees <= self.max
    }

    fn clamp(self, degrees: f64) -> f64 {
        degrees.clamp(self.min, self.max)
    }
}

/// A position on the globe, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// East of Greenwich.
    pub longitude: f64,
    /// North of the equator.
    pub latitude: f64,
}

impl Position {
    /// A position that can be stored: longitude −180 to 180, latitude −85.05112878 to 85.05112878.
    pub fn new(longitude: f64, latitude: f64) -> Option<Position> {
        let valid = LONGITUDES.contains(longitude) && LATITUDES.contains(latitude);
        valid.then_some(Position {
            longitude,
            latitude,
        })
    }

    /// Its number.
    pub fn to_score(self) -> f64 {
        self.cell(STEP_MAX).bits as f64
    }

    /// The middle of the cell with this number. Scores that no position has give the positions
    /// that Redis finds for them, at the edge of the map.
    pub fn from_score(score: f64) -> Position {
        let (row, column) = deinterleave(bits_of_score(score));
        let column = LONGITUDES.part(column, STEP_MAX);
        let row = LATITUDES.part(row, STEP_MAX);
        Position {
            longitude: LONGITUDES.clamp(column.middle()),
            latitude: LATITUDES.clamp(row.middle()),
        }
    }

    /// The standard geohash string: eleven characters, the last one always `0`, as 52 bits
    /// determine ten.
    pub fn to_geohash(self) -> [u8; 11] {
        let row = ALL_LATITUDES.part_of(self.latitude, STEP_MAX);
        let column = LONGITUDES.part_of(self.longitude, STEP_MAX);
        let bits = interleave(row, column);
        let mut text = [BASE32[0]; 11];
        for (character, shift) in text.iter_mut().zip((2..=47).rev().step_by(5)) {
            *character = BASE32[(bits >> shift & 31) as usize];
        }
        text
    }

    /// The great-circle distance in m, by the haversine formula.
    pub fn distance_m(self, other: Position) -> f64 {
        let across = ((other.longitude * RADIANS - self.longitude * RADIANS) / 2.0).sin();
        if across == 0.0 {
            return self.distance_of_latitudes_m(other);
        }
        let (from, to) = (self.latitude * RADIANS, other.latitude * RADIANS);
        let along = ((to - from) / 2.0).sin();
        let a = along * along + from.cos() * to.cos() * across * across;
        // Rounding may leave more than 1 for opposite points.
        2.0 * EARTH_RADIUS_M * a.sqrt().min(1.0).asin()
    }

    fn distance_of_latitudes_m(self, other: Position) -> f64 {
        EARTH_RADIUS_M * (other.latitude * RADIANS - self.latitude * RADIANS).abs()
    }

    /// The cell that holds it.
    fn cell(self, step: u32) -> Cell {
        let row = LATITUDES.part_of(self.latitude, step);
        let column = LONGITUDES.part_of(self.longitude, step);
        Cell {
            bits: interleave(row, column),
            step,
        }
    }
}

/// A score as the integer that the compilers of Redis make of it, also where C leaves that open.
fn bits_of_score(score: f64) -> u64 {
    const TWO_TO_63: f64 = (1u64 << 63) as f64;
    match score {
        TWO_TO_63.. => integer(score - TWO_TO_63) as u64 ^ 1 << 63,
        _ => integer(score) as u64,
    }
}

/// A number cut to an integer, as x86-64 converts it: what does not fit is the lowest integer.
pub fn integer(number: f64) -> i64 {
    match number {
        -9223372036854775808.0..9223372036854775808.0 => number as i64,
        _ => i64::MIN,
    }
}

/// A cell of the grid of 2^`step` columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    bits: u64,
    step: u32,
}

impl Cell {
    /// The cell so many columns to the east and rows to the north. The grid has no edges.
    fn moved(self, columns: i32, rows: i32) -> Cell {
        let (row, column) = deinterleave(self.bits);
        let mask = (1u32 << self.step) - 1;
        let shifted = |number: u32, by: i32| match by {
            0 => number,
            by => number.wrapping_add_signed(by) & mask,
        };
        Cell {
            bits: interleave(shifted(row, rows), shifted(column, columns)),
            step: self.step,
        }
    }

    fn longitudes(self) -> Interval {
        LONGITUDES.part(deinterleave(self.bits).1, self.step)
    }

    fn latitudes(self) -> Interval {
        LATITUDES.part(deinterleave(self.bits).0, self.step)
    }

    /// The scores of the positions in the cell: the first, and the first beyond it.
    fn scores(self) -> (f64, f64) {
        let shift = 2 * (STEP_MAX - self.step);
        let score = |bits: u64| (bits << shift) as f64;
        (score(self.bits), score(self.bits + 1))
    }
}

/// What bounds an [`Area`], in its unit.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// All points within a distance of the centre.
    Circle {
        /// The distance.
        radius: f64,
    },
    /// A rectangle around the centre, with edges along meridians and parallels.
    Rectangle {
        /// From west to east.
        width: f64,
        /// From south to north.
        height: f64,
    },
    /// The inside of a polygon on the map of longitudes and latitudes.
    Polygon {
        /// At least three corners; the last is connected with the first.
        corners: Vec<Position>,
    },
}

/// An area on the globe.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    centre: Position,
    shape: Shape,
    /// In m: the unit of the lengths of the shape.
    unit_m: f64,
    longitudes: Interval,
    latitudes: Interval,
}

impl Area {
    /// A circle or a rectangle.
    pub fn around(centre: Position, shape: Shape, unit_m: f64) -> Area {
        let (across, along) = match &shape {
            Shape::Circle { radius } => (unit_m * radius, unit_m * radius),
            Shape::Rectangle { width, height } => (unit_m * (width / 2.0), unit_m * (height / 2.0)),
            Shape::Polygon { corners } => return Area::polygon(corners.clone()),
        };
        let rows = along / EARTH_RADIUS_M / RADIANS;
        // A degree of longitude is shortest at the edge that is next to a pole; Redis takes the
        // northern edge on the northern hemisphere, and so on.
        let edge = match centre.latitude < 0.0 {
            true => centre.latitude - rows,
            false => centre.latitude + rows,
        };
        let columns = across / EARTH_RADIUS_M / (edge * RADIANS).cos() / RADIANS;
        Area {
            longitudes: Interval::new(centre.longitude - columns, centre.longitude + columns),
            latitudes: Interval::new(centre.latitude - rows, centre.latitude + rows),
            centre,
            shape,
            unit_m,
        }
    }

    /// A polygon. Its centre, from which distances are measured, is the direction of the sum of
    /// its corners as points of a sphere.
    pub fn polygon(corners: Vec<Position>) -> Area {
        let mut longitudes = Interval::new(LONGITUDES.max, LONGITUDES.min);
        let mut latitudes = Interval::new(LATITUDES.max, LATITUDES.min);
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for corner in &corners {
            let extend = |range: &mut Interval, degrees: f64| {
                *range = Interval::new(range.min.min(degrees), range.max.max(degrees));
            };
            extend(&mut longitudes, corner.longitude);
            extend(&mut latitudes, corner.latitude);
            let (column, row) = (corner.longitude * RADIANS, corner.latitude * RADIANS);
            x += row.cos() * column.cos();
            y += row.cos() * column.sin();
            z += row.sin();
        }
        Area {
            centre: Position {
                longitude: f64::atan2(y, x) / RADIANS,
                latitude: f64::atan2(z, (x * x + y * y).sqrt()) / RADIANS,
            },
            shape: Shape::Polygon { corners },
            unit_m: 1.0,
            longitudes,
            latitudes,
        }
    }

    /// A length in m, in the unit of the area.
    pub fn in_unit(&self, length_m: f64) -> f64 {
        length_m / self.unit_m
    }

    /// The distance of a position from the centre in m, if it lies in the area.
    pub fn distance_m(&self, position: Position) -> Option<f64> {
        match &self.shape {
            Shape::Circle { radius } => {
                let distance = self.centre.distance_m(position);
                (distance <= radius * self.unit_m).then_some(distance)
            }
            Shape::Rectangle { width, height } => {
                if self.centre.distance_of_latitudes_m(position) > height * self.unit_m / 2.0 {
                    return None;
                }
                let level = Position {
                    longitude: self.centre.longitude,
                    latitude: position.latitude,
                };
                if position.distance_m(level) > width * self.unit_m / 2.0 {
                    return None;
                }
                Some(self.centre.distance_m(position))
            }
            Shape::Polygon { corners } => {
                is_inside(corners, position).then(|| self.centre.distance_m(position))
            }
        }
    }

    /// Ranges of scores that hold all positions of the area and others near it: the first score
    /// of each range, and the first beyond it. The order is that of Redis, in which searches
    /// without an order answer: the middle, then north, south, east, west, and the corners.
    pub fn cells(&self) -> impl Iterator<Item = (f64, f64)> + use<> {
        let (middle, keeps) = self.grid();
        let around = [
            (0, 0),
            (0, 1),
            (0, -1),
            (1, 0),
            (-1, 0),
            (1, 1),
            (-1, 1),
            (1, -1),
            (-1, -1),
        ];
        let needed = around
            .into_iter()
            .filter(move |(columns, rows)| keeps.allow(*columns, *rows))
            .map(move |(columns, rows)| ((columns, rows) == (0, 0), middle.moved(columns, rows)));
        // On a grid of two columns, the cells in the east and in the west are the same one.
        let mut last = None;
        let distinct = needed.filter(move |(is_middle, cell)| {
            let is_repeated = last == Some(*cell);
            if !is_middle && !is_repeated {
                last = Some(*cell);
            }
            !is_repeated
        });
        distinct.map(|(_, cell)| cell.scores())
    }

    /// A part of the finest grid that holds all positions of the area. It is not much larger, so most
    /// positions outside of the area need no more than a comparison with it.
    pub fn frame(&self) -> Frame {
        let (mut longitudes, latitudes) = self.edges();
        // Beyond the edge of the map its other side follows.
        if !(longitudes.min >= LONGITUDES.min && longitudes.max <= LONGITUDES.max) {
            longitudes = LONGITUDES;
        }
        Frame::new(
            grid_lines(LATITUDES, latitudes),
            grid_lines(LONGITUDES, longitudes),
        )
    }

    /// The longitudes and latitudes of the area, not of the cells that Redis searches. Rounding may
    /// cut off less than a cell of the finest grid.
    fn edges(&self) -> (Interval, Interval) {
        let around = |middle: f64, half: f64| {
            let half = half / RADIANS;
            Interval::new(middle - half, middle + half)
        };
        let centre = self.centre;
        let (across, along) = match &self.shape {
            Shape::Polygon { .. } => return (self.longitudes, self.latitudes),
            Shape::Circle { radius } => {
                let angle = radius * self.unit_m / EARTH_RADIUS_M;
                // A meridian touches the circle nearer to the pole than the centre is.
                let touches = angle.sin() / (centre.latitude * RADIANS).cos();
                let is_at_pole = centre.latitude.abs() * RADIANS + angle >= FRAC_PI_2;
                (half_turn_unless(!is_at_pole, touches), angle)
            }
            Shape::Rectangle { width, height } => {
                let [width, height] =
                    [width, height].map(|n| n * self.unit_m / 2.0 / EARTH_RADIUS_M);
                // Degrees of longitude are shortest at the edge next to a pole.
                let edge = (centre.latitude.abs() + height / RADIANS).min(LATITUDES.max);
                let chord = (width / 2.0).sin() / (edge * RADIANS).cos();
                (2.0 * half_turn_unless(width < PI, chord), height)
            }
        };
        (
            around(centre.longitude, across),
            around(centre.latitude, along),
        )
    }

    /// The cell in the middle, and which of its neighbours are needed.
    fn grid(&self) -> (Cell, Neighbours) {
        let middle = self.middle();
        let mut cell = middle.cell(self.step());
        if cell.step > 1 && !self.is_covered_around(cell) {
            cell = middle.cell(cell.step - 1);
        }
        // A polygon may reach farther to one side than Valkey assumes.
        if matches!(self.shape, Shape::Polygon { .. }) {
            while cell.step > 1 && !self.is_within_one_cell_of(cell) {
                cell = middle.cell(cell.step - 1);
            }
        }
        let (longitudes, latitudes) = (cell.longitudes(), cell.latitudes());
        let all = cell.step < 2;
        let keeps = Neighbours {
            north: all || latitudes.max <= self.latitudes.max || self.latitudes.max.is_nan(),
            south: all || latitudes.min >= self.latitudes.min || self.latitudes.min.is_nan(),
            east: all || longitudes.max <= self.longitudes.max || self.longitudes.max.is_nan(),
            west: all || longitudes.min >= self.longitudes.min || self.longitudes.min.is_nan(),
        };
        (cell, keeps)
    }

    /// A position in the cell in the middle. The centre of a polygon may lie outside the map, whose
    /// upper edges belong to no cell.
    fn middle(&self) -> Position {
        match self.shape {
            Shape::Polygon { .. } => Position {
                longitude: self.centre.longitude.clamp(-180.0, 179.999),
                latitude: self.centre.latitude.clamp(-85.0, 85.0),
            },
            Shape::Circle { .. } | Shape::Rectangle { .. } => self.centre,
        }
    }

    /// The step of a grid whose cells are about as large as the area.
    fn step(&self) -> u32 {
        let half = |length: &f64| length / 2.0;
        let radius_m = match &self.shape {
            Shape::Circle { radius } => radius * self.unit_m,
            Shape::Rectangle { width, height } => {
                let (across, along) = (half(width), half(height));
                (across * across + along * along).sqrt() * self.unit_m
            }
            Shape::Polygon { .. } => {
                let (west, east) = (self.longitudes.min, self.longitudes.max);
                let (south, north) = (self.latitudes.min, self.latitudes.max);
                [(west, north), (east, north), (west, south), (east, south)]
                    .map(|(longitude, latitude)| Position {
                        longitude,
                        latitude,
                    })
                    .map(|corner| self.centre.distance_m(corner))
                    .into_iter()
                    .fold(0.0, f64::max)
            }
        };
        if radius_m == 0.0 {
            return STEP_MAX;
        }
        let mut step: i32 = 1;
        let mut covered_m = radius_m;
        while covered_m < MERCATOR_MAX_M {
            covered_m *= 2.0;
            step += 1;
        }
        // Two steps less cover the area in most cases; towards the poles cells are smaller.
        step -= 2;
        let latitude = self.centre.latitude.abs();
        step -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        step.clamp(1, STEP_MAX as i32).unsigned_abs()
    }

    /// Whether the neighbours of a cell reach the edges of the area, as Redis decides it. At the
    /// edge of the map they are at its other side, and do not.
    fn is_covered_around(&self, cell: Cell) -> bool {
        let north = cell.moved(0, 1).latitudes().max;
        let south = cell.moved(0, -1).latitudes().min;
        let east = cell.moved(1, 0).longitudes().max;
        let west = cell.moved(-1, 0).longitudes().min;
        !(north < self.latitudes.max
            || south > self.latitudes.min
            || east < self.longitudes.max
            || west > self.longitudes.min)
    }

    /// Whether the area reaches at most one cell beyond a cell on each side.
    fn is_within_one_cell_of(&self, cell: Cell) -> bool {
        let reaches = |middle: Interval, edges: Interval| {
            let size = middle.max - middle.min;
            middle.max + size >= edges.max && middle.min - size <= edges.min
        };
        reaches(cell.longitudes(), self.longitudes) && reaches(cell.latitudes(), self.latitudes)
    }
}

/// The arc sine of `sine`; a half turn, which leads to the other side of the globe, if there is none,
/// or if it does not matter.
fn half_turn_unless(matters: bool, sine: f64) -> f64 {
    match matters && sine < 1.0 {
        true => sine.asin(),
        false => PI,
    }
}

/// The first and the last row or column of the finest grid in an interval, and one more at each end.
fn grid_lines(map: Interval, part: Interval) -> (u32, u32) {
    let number = |degrees: f64| map.part_of(map.clamp(degrees), STEP_MAX);
    let first = match part.min > map.min {
        true => number(part.min).saturating_sub(1),
        false => 0,
    };
    let last = match part.max < map.max {
        true => number(part.max) + 1,
        false => Frame::LAST,
    };
    (first, last)
}

/// The sides of a cell on which its neighbours are needed.
#[derive(Debug, Clone, Copy)]
struct Neighbours {
    north: bool,
    south: bool,
    east: bool,
    west: bool,
}

impl Neighbours {
    fn allow(self, columns: i32, rows: i32) -> bool {
        (rows <= 0 || self.north)
            && (rows >= 0 || self.south)
            && (columns <= 0 || self.east)
            && (columns >= 0 || self.west)
    }
}

/// Whether a polygon has a position inside: whether a ray from there to the east crosses an odd
/// number of its edges.
fn is_inside(corners: &[Position], position: Position) -> bool {
    let mut is_inside = false;
    let mut last = corners.last();
    for a in corners {
        if let Some(b) = last.replace(a)
            && (a.latitude > position.latitude) != (b.latitude > position.latitude)
            && position.longitude
                < (b.longitude - a.longitude) * (position.latitude - a.latitude)
                    / (b.latitude - a.latitude)
                    + a.longitude
        {
            is_inside = !is_inside;
        }
    }
    is_inside
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(longitude: f64, latitude: f64) -> Position {
        Position::new(longitude, latitude).unwrap()
    }

    /// The numbers, texts and lengths are those of Redis.
    #[test]
    fn positions_have_the_numbers_of_redis() {
        let palermo = at(13.361389, 38.115556);
        let catania = at(15.087269, 37.502669);
        assert_eq!(palermo.to_score(), 3479099956230698.0);
        assert_eq!(catania.to_score(), 3479447370796909.0);
        let stored = Position::from_score(3479099956230698.0);
        assert_eq!(stored.longitude, 13.361389338970184);
        assert_eq!(stored.latitude, 38.1155563954963);
        assert_eq!(&stored.to_geohash(), b"sqc8b49rny0");
        let other = Position::from_score(3479447370796909.0);
        assert_eq!(&other.to_geohash(), b"sqdtr74hyu0");
        assert_eq!(format!("{:.4}", stored.distance_m(other)), "166274.1516");
    }

    #[test]
    fn bits_are_interleaved_and_taken_apart() {
        assert_eq!(interleave(0b11, 0), 0b0101);
        assert_eq!(interleave(0, 0b11), 0b1010);
        for (even, odd) in [(0, 0), (1, u32::MAX), (0x1234_5678, 0x9abc_def0)] {
            assert_eq!(deinterleave(interleave(even, odd)), (even, odd));
        }
    }

    #[test]
    fn any_score_is_a_position() {
        for score in [
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            1e300,
            9.3e18,
            1.8e19,
            0.5,
            (1u64 << 52) as f64,
        ] {
            let position = Position::from_score(score);
            assert!(Position::new(position.longitude, position.latitude).is_some());
        }
        assert_eq!(integer(f64::INFINITY), i64::MIN);
        assert_eq!(integer(-2.9), -2);
    }

    #[test]
    fn opposite_points_have_a_distance() {
        let distance = at(0.0, 0.0).distance_m(at(180.0, 0.0));
        assert_eq!(distance, EARTH_RADIUS_M * std::f64::consts::PI);
    }

    fn random(rng: &mut fastrand::Rng) -> Position {
        let scaled = |rng: &mut fastrand::Rng, max: f64| (rng.f64() * 2.0 - 1.0) * max;
        at(scaled(rng, 180.0), scaled(rng, LATITUDES.max))
    }

    /// A position is in the area if and only if it is in one of the cells, and in one only.
    #[test]
    fn the_cells_of_an_area_hold_its_positions_once() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        for round in 0..3000 {
            let corners: Vec<Position> = match round % 2 {
                0 => (0..3).map(|_| random(&mut rng)).collect(),
                _ => {
                    let near = random(&mut rng);
                    let size = 10f64.powi(-rng.i32(0..5));
                    let shift = |rng: &mut fastrand::Rng| (rng.f64() - 0.5) * size;
                    (0..5)
                        .map(|_| {
                            let longitude = LONGITUDES.clamp(near.longitude + shift(&mut rng));
                            let latitude = LATITUDES.clamp(near.latitude + shift(&mut rng));
                            at(longitude, latitude)
                        })
                        .collect()
                }
            };
            let area = Area::polygon(corners.clone());
            let cells: Vec<(f64, f64)> = area.cells().collect();
            for _ in 0..20 {
                let weights: Vec<f64> = corners.iter().map(|_| rng.f64()).collect();
                let sum: f64 = weights.iter().sum();
                let mix = |part: fn(&Position) -> f64| -> f64 {
                    let parts = corners.iter().zip(&weights);
                    parts
                        .map(|(corner, weight)| part(corner) * weight / sum)
                        .sum()
                };
                let inside = at(
                    LONGITUDES.clamp(mix(|corner| corner.longitude)),
                    LATITUDES.clamp(mix(|corner| corner.latitude)),
                );
                let score = inside.to_score();
                if area.distance_m(Position::from_score(score)).is_some() {
                    let holding = cells
                        .iter()
                        .filter(|(min, max)| (*min..*max).contains(&score));
                    assert_eq!(holding.count(), 1, "seed {seed}: {corners:?} {inside:?}");
                    assert!(
                        area.frame().contains(score as u64),
                        "seed {seed}: {corners:?}"
                    );
                }
            }
        }
    }

    /// A circle in the middle of the map is covered; a small one by cells of its size.
    #[test]
    fn the_cells_of_a_circle_are_about_as_large() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..2000 {
            let centre = at((rng.f64() - 0.5) * 300.0, (rng.f64() - 0.5) * 120.0);
            let radius = 10f64.powf(rng.f64() * 6.0);
            let area = Area::around(centre, Shape::Circle { radius }, 1.0);
            let cells: Vec<(f64, f64)> = area.cells().collect();
            assert!(cells.len() <= 9);
            for _ in 0..20 {
                let turned = |rng: &mut fastrand::Rng| (rng.f64() - 0.5) * radius / 60_000.0;
                let longitude = centre.longitude + turned(&mut rng);
                let latitude = centre.latitude + turned(&mut rng);
                let Some(point) = Position::new(longitude, latitude) else {
                    continue;
                };
                let score = point.to_score();
                if area.distance_m(Position::from_score(score)).is_some() {
                    let holding = cells
                        .iter()
                        .filter(|(min, max)| (*min..*max).contains(&score));
                    assert_eq!(holding.count(), 1, "seed {seed}: {area:?} {point:?}");
                }
            }
        }
    }

    /// What lies in an area lies in its frame, near the poles and the edges of the map, too.
    #[test]
    fn the_frame_of_an_area_holds_its_positions() {
        let seed = fastrand::u64(..);
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut inside, mut outside) = (0, 0);
        for _ in 0..20_000 {
            let centre = match rng.u8(..3) {
                0 => random(&mut rng),
                1 => at(179.9 * (1.0 - 2.0 * f64::from(rng.u8(..2))), 84.0),
                _ => at((rng.f64() - 0.5) * 300.0, (rng.f64() - 0.5) * 120.0),
            };
            let length = |rng: &mut fastrand::Rng| 10f64.powf(rng.f64() * 7.5);
            let shape = match rng.bool() {
                true => Shape::Circle {
                    radius: length(&mut rng),
                },
                false => Shape::Rectangle {
                    width: length(&mut rng),
                    height: length(&mut rng),
                },
            };
            let area = Area::around(centre, shape, 1.0);
            let frame = area.frame();
            for _ in 0..10 {
                let size = 10f64.powf(rng.f64() * 8.0 - 5.0);
                let shift = |rng: &mut fastrand::Rng| (rng.f64() - 0.5) * size;
                let point = match rng.u8(..4) {
                    0 => random(&mut rng),
                    _ => at(
                        LONGITUDES.clamp(centre.longitude + shift(&mut rng)),
                        LATITUDES.clamp(centre.latitude + shift(&mut rng)),
                    ),
                };
                let score = point.to_score();
                let is_held = frame.contains(score as u64);
                if area.distance_m(Position::from_score(score)).is_some() {
                    inside += 1;
                    assert!(is_held, "seed {seed}: {area:?} {point:?}");
                } else if !is_held {
                    outside += 1;
                }
            }
        }
        assert!(inside > 10_000 && outside > 10_000, "{inside} {outside}");
    }

    /// The frame leaves out most of the cells, which is what it is for.
    #[test]
    fn the_frame_is_about_as_large_as_the_area() {
        let area = Area::around(at(15.0, 47.0), Shape::Circle { radius: 20.0 }, 1000.0);
        let frame = area.frame();
        let near = |longitude, latitude| frame.contains(at(longitude, latitude).to_score() as u64);
        assert!(near(15.26, 47.0) && near(15.0, 47.179));
        assert!(!near(15.27, 47.0) && !near(15.0, 47.181));
    }

    #[test]
    fn a_polygon_around_the_globe_is_covered() {
        let corners = vec![at(-170.0, 80.0), at(170.0, 80.0), at(0.0, 85.0)];
        let area = Area::polygon(corners);
        let inside = at(0.0, 82.0).to_score();
        assert!(area.distance_m(Position::from_score(inside)).is_some());
        assert!(area.cells().any(|(min, max)| (min..max).contains(&inside)));
    }
}
