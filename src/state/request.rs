//! A request that is stored: queued by MULTI, or of a waiting client.

/// The arguments of a command, owned, in one piece of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    bytes: Box<[u8]>,
    /// The end of each argument.
    ends: Box<[usize]>,
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
            ends: ends.collect(),
            bytes: args.concat().into(),
        }
    }

    /// The arguments.
    pub fn args(&self) -> Vec<&[u8]> {
        let mut start = 0;
        let args = self.ends.iter().map(|&end| {
            let arg = &self.bytes[start..end];
            start = end;
            arg
        });
        args.collect()
    }

    /// Bytes of the arguments.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the arguments have no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Approximate memory, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Request>() + self.bytes.len() + size_of_val(&*self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_back_as_they_were() {
        for args in [&[][..], &[&b""[..]], &[b"SET", b"", b"k\r\n", b""]] {
            let kept = Request::new(args);
            assert_eq!(kept.args(), args);
            assert!(kept.memory() >= kept.len());
        }
    }
}
