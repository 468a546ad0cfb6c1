//! The smallest sequence that still shows a difference.

use std::time::{Duration, Instant};

use super::run::{Difference, Pair, Step};

/// Time limit for shrinking.
const LIMIT: Duration = Duration::from_secs(60);

/// Removes steps and arguments while both servers still differ.
pub fn smallest(
    pair: &mut Pair,
    steps: Vec<Step>,
    protocol: u8,
    first: Difference,
) -> (Vec<Step>, Difference) {
    let start = Instant::now();
    let mut best = (steps, first);
    best.0.truncate(best.1.at + 1);
    let mut fails = |steps: &[Step]| {
        if start.elapsed() > LIMIT {
            return None;
        }
        pair.run(steps, protocol)
    };
    if let Some(again) = fails(&best.0) {
        best.1 = again;
    } else {
        println!("(the difference did not show a second time)");
        return best;
    }
    without_pipelines(&mut best, &mut fails);
    without_steps(&mut best, &mut fails);
    without_arguments(&mut best, &mut fails);
    without_steps(&mut best, &mut fails);
    best
}

type Found = (Vec<Step>, Difference);

/// One command per write, if that differs too.
fn without_pipelines(best: &mut Found, fails: &mut impl FnMut(&[Step]) -> Option<Difference>) {
    let mut steps = best.0.clone();
    steps.iter_mut().for_each(|step| step.flush = true);
    if let Some(difference) = fails(&steps) {
        *best = (steps, difference);
    }
}

/// Deletes runs of steps, shorter and shorter ones.
fn without_steps(best: &mut Found, fails: &mut impl FnMut(&[Step]) -> Option<Difference>) {
    let mut run = best.0.len() / 2;
    while run > 0 {
        let mut at = 0;
        while at < best.0.len() {
            let mut steps = best.0.clone();
            // A pause belongs to the step before it.
            let mut end = (at + run).min(steps.len());
            while end < steps.len() && steps[end].args.is_empty() {
                end += 1;
            }
            steps.drain(at..end);
            match fails(&steps) {
                Some(difference) => *best = (steps, difference),
                None => at += run,
            }
        }
        run /= 2;
    }
}

/// Deletes arguments of long commands.
fn without_arguments(best: &mut Found, fails: &mut impl FnMut(&[Step]) -> Option<Difference>) {
    for index in 0..best.0.len() {
        let mut run = best.0.get(index).map_or(0, |step| step.args.len() / 2);
        while run > 0 {
            let mut at = 2;
            while at + run <= best.0[index].args.len() {
                let mut steps = best.0.clone();
                steps[index].args.drain(at..at + run);
                match fails(&steps) {
                    // An arity error would be another difference.
                    Some(d) if d.same_command(&best.1) && !d.is_about_arity() => {
                        *best = (steps, d);
                    }
                    _ => at += run,
                }
            }
            run /= 2;
        }
    }
}
