//! A request that is stored: queued by MULTI, or of a waiting client.

use crate::resp::ArgRange;

/// The arguments of a command, owned, in one piece of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    bytes: Vec<u8>,
    places: Places,
}

/// Where in its bytes the arguments are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Places {
    /// One behind the other; the end of each.
    Ends(Box<[usize]>),
    /// As they came from the client, in a request that begins so many bytes after the first.
    Ranges(Vec<ArgRange>, usize),
}

impl Request {
    /// Copies `args`.
    pub fn new(args: &[&[u8]]) -> Request {
        let mut end = 0;
        let ends = args.iter().map(|arg| {
            end += arg.len();
            end
        });
        Request {
            places: Places::Ends(ends.collect()),
            bytes: args.concat(),
        }
    }

    /// Takes a buffer with a request after so many bytes, and the places of its arguments: a long
    /// request need not be copied.
    pub fn of_buffer(bytes: Vec<u8>, skipped: usize, places: Vec<ArgRange>) -> Request {
        let places = Places::Ranges(places, skipped);
        Request { bytes, places }
    }

    /// The arguments.
    pub fn args(&self) -> Vec<&[u8]> {
        self.first(usize::MAX)
    }

    /// The command and its subcommand.
    pub fn head(&self) -> Vec<&[u8]> {
        self.first(2)
    }

    fn first(&self, most: usize) -> Vec<&[u8]> {
        let mut start = 0;
        match &self.places {
            Places::Ends(ends) => {
                let args = ends.iter().take(most).map(|&end| {
                    let arg = &self.bytes[start..end];
                    start = end;
                    arg
                });
                args.collect()
            }
            Places::Ranges(ranges, skipped) => {
                let bytes = self.bytes.get(*skipped..).unwrap_or_default();
                let args = ranges.iter().take(most);
                args.map(|range| bytes.get(range.start..range.end).unwrap_or_default())
                    .collect()
            }
        }
    }

    /// The number of arguments.
    pub fn words(&self) -> usize {
        match &self.places {
            Places::Ends(ends) => ends.len(),
            Places::Ranges(ranges, _) => ranges.len(),
        }
    }

    /// The buffer with the arguments.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes of the arguments, and what stands between them.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the arguments have no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Approximate memory, in bytes.
    pub fn memory(&self) -> usize {
        let places = match &self.places {
            Places::Ends(ends) => size_of_val(&**ends),
            Places::Ranges(ranges, _) => ranges.capacity() * size_of::<ArgRange>(),
        };
        size_of::<Request>() + self.bytes.capacity() + places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKIPPED: usize = 3;

    #[test]
    fn arguments_come_back_as_they_were() {
        for args in [&[][..], &[&b""[..]], &[b"SET", b"", b"k\r\n", b""]] {
            let kept = Request::new(args);
            assert_eq!(kept.args(), args);
            assert!(kept.memory() >= kept.len());
            let mut buffer = vec![0; SKIPPED];
            let places = args.iter().map(|arg| {
                buffer.extend_from_slice(b"$\r\n");
                let start = buffer.len() - SKIPPED;
                buffer.extend_from_slice(arg);
                let end = buffer.len() - SKIPPED;
                ArgRange { start, end }
            });
            let places = places.collect();
            let taken = Request::of_buffer(buffer.clone(), SKIPPED, places);
            assert_eq!(taken.args(), args);
            assert_eq!(taken.words(), args.len());
            assert_eq!(taken.into_buffer(), buffer);
        }
    }
}
