//! The turns of a conversation about which there is nothing to know but that everything is trusted
//! and for everybody: all that the model had read, and what its calls have brought. Most
//! conversations have no others, so all of them are one small entry.
//!
//! The entry is a list of three numbers for each range of turns without a gap: the first turn, the
//! last one, and the calls of the last one that have a result, a bit for each. A turn follows in a
//! range if all calls of the turn before have such a result.

use serde_json::{Value, json};

/// Returns the bits of the calls of this turn that have a trusted result. `None` if the turn is
/// none of these.
pub(super) fn find(entry: Option<&Value>, turn: u32) -> Option<u64> {
    let numbers = entry?.as_array()?;
    // The latest ranges are at the end, and most questions are about the last turn.
    let mut ranges = numbers.rchunks_exact(LENGTH).map(read);
    ranges.find_map(|range| range.filter(|range| range.has(turn))?.calls_of(turn))
}

/// Adds a turn that is not among them, and the bits of those of its calls that have a result.
/// `calls_before` is the number of calls of the turn before, if the model has read it.
pub(super) fn add(entry: &mut Value, turn: u32, calls: u64, calls_before: Option<usize>) {
    take(entry, turn);
    if !entry.is_array() {
        *entry = json!([]);
    }
    let Some(numbers) = entry.as_array_mut() else {
        return;
    };
    let start = numbers.len().saturating_sub(LENGTH);
    let last = read(&numbers[start..]);
    match last.filter(|last| last.is_followed_by(turn, calls_before)) {
        Some(last) => {
            numbers.truncate(start);
            numbers.extend([last.first.into(), turn.into(), calls.into()]);
        }
        None => numbers.extend([turn.into(), turn.into(), calls.into()]),
    }
}

/// Records that the calls with these bits have a result, if the turn is one of these. Returns
/// whether it is.
pub(super) fn mark(entry: &mut Value, turn: u32, calls: u64) -> bool {
    let Some(numbers) = entry.as_array_mut() else {
        return false;
    };
    for numbers in numbers.rchunks_exact_mut(LENGTH) {
        let Some(range) = read(numbers).filter(|range| range.has(turn)) else {
            continue;
        };
        // All calls of a turn that others follow have one.
        if turn == range.last {
            numbers[LENGTH - 1] = (range.calls | calls).into();
        }
        return true;
    }
    false
}

/// Removes a turn. Returns the bits of its calls that have a result, if it was one of these.
pub(super) fn take(entry: &mut Value, turn: u32) -> Option<u64> {
    let calls = find(Some(entry), turn)?;
    let mut left = Vec::new();
    for range in entry.as_array()?.chunks_exact(LENGTH).filter_map(read) {
        if !range.has(turn) {
            left.push(range);
            continue;
        }
        if range.first < turn {
            left.push(Range {
                last: turn - 1,
                calls: u64::MAX,
                ..range
            });
        }
        if turn < range.last {
            left.push(Range {
                first: turn + 1,
                ..range
            });
        }
    }
    let numbers = left.into_iter().flat_map(|range| {
        let Range { first, last, calls } = range;
        [first.into(), last.into(), calls.into()]
    });
    *entry = Value::Array(numbers.collect());
    Some(calls)
}

/// The numbers of a range.
const LENGTH: usize = 3;

/// Turns without a gap.
#[derive(Clone, Copy)]
struct Range {
    first: u32,
    last: u32,
    /// The bits of the calls of the last turn that have a result.
    calls: u64,
}

fn read(numbers: &[Value]) -> Option<Range> {
    let [first, last, calls] = numbers else {
        return None;
    };
    Some(Range {
        first: first.as_u64()?.try_into().ok()?,
        last: last.as_u64()?.try_into().ok()?,
        calls: calls.as_u64()?,
    })
}

impl Range {
    fn has(&self, turn: u32) -> bool {
        (self.first..=self.last).contains(&turn)
    }

    fn calls_of(&self, turn: u32) -> Option<u64> {
        Some(if turn == self.last {
            self.calls
        } else {
            u64::MAX
        })
    }

    fn is_followed_by(&self, turn: u32, calls_before: Option<usize>) -> bool {
        let is_next = self.last.checked_add(1) == Some(turn);
        let all = calls_before.and_then(all_calls);
        is_next && all.is_some_and(|all| self.calls & all == all)
    }
}

/// Returns the bits of this many calls, if there are as many.
fn all_calls(calls: usize) -> Option<u64> {
    match calls {
        64 => Some(u64::MAX),
        _ => Some(1_u64.checked_shl(calls.try_into().ok()?)? - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_follow_in_a_range_while_their_calls_have_results() {
        let mut entry = Value::Null;
        add(&mut entry, 1, 0, None);
        assert_eq!(find(Some(&entry), 1), Some(0));
        assert!(mark(&mut entry, 1, 0b1) && mark(&mut entry, 1, 0b10));
        add(&mut entry, 2, 0, Some(2));
        assert_eq!(entry, json!([1, 2, 0]));
        assert_eq!(find(Some(&entry), 1), Some(u64::MAX));
        // A call without a result, a message between, and a turn that the model has not read.
        add(&mut entry, 3, 0, Some(1));
        add(&mut entry, 5, 0, Some(0));
        add(&mut entry, 6, 0, None);
        assert_eq!(entry, json!([1, 2, 0, 3, 3, 0, 5, 5, 0, 6, 6, 0]));
        assert_eq!(find(Some(&entry), 4), None);
        add(&mut entry, 7, 0, Some(0));
        assert!(mark(&mut entry, 2, 0b1) && mark(&mut entry, 7, 0b1) && !mark(&mut entry, 8, 0b1));
        assert_eq!(entry, json!([1, 2, 1, 3, 3, 0, 5, 5, 0, 6, 7, 1]));
        // A turn that is made again has no results yet.
        add(&mut entry, 7, 0, Some(0));
        assert_eq!(find(Some(&entry), 7), Some(0));
    }

    #[test]
    fn a_turn_that_is_taken_out_leaves_the_others() {
        let whole = json!([1, 5, 0b11, 7, 7, 0]);
        for (turn, calls, left) in [
            (1, Some(u64::MAX), json!([2, 5, 0b11, 7, 7, 0])),
            (
                3,
                Some(u64::MAX),
                json!([1, 2, u64::MAX, 4, 5, 0b11, 7, 7, 0]),
            ),
            (5, Some(0b11), json!([1, 4, u64::MAX, 7, 7, 0])),
            (7, Some(0), json!([1, 5, 0b11])),
            (6, None, whole.clone()),
        ] {
            let mut entry = whole.clone();
            assert_eq!(take(&mut entry, turn), calls, "{turn}");
            assert_eq!(entry, left, "{turn}");
            assert_eq!(find(Some(&entry), turn), None, "{turn}");
        }
    }

    #[test]
    fn what_is_no_list_of_ranges_has_no_turns() {
        for entry in [json!(7), json!([1]), json!(["a", 2, 3]), json!([-1, 5, 0])] {
            assert_eq!(find(Some(&entry), 1), None, "{entry}");
        }
        assert_eq!(all_calls(0), Some(0));
        assert_eq!(all_calls(64), Some(u64::MAX));
        assert_eq!(all_calls(65), None);
    }
}
