//! The kinds of values of parameters.

/// The kind of a parameter's values, as far as it does not depend on a Rust type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// `yes` or `no`.
    Bool,
    /// A decimal integer within bounds.
    Int {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// An integer within bounds, with the errors of a module of Redis.
    OfModule {
        /// The parameter, which the errors name.
        name: &'static str,
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A number between 0 and 1, of the module's parameter with this name.
    Ratio(&'static str),
    /// File permissions in octal, `0` to `777`.
    Octal,
    /// A number of bytes, with units (`1k` = 1000, `1kb` = 1024, m, g).
    Memory {
        /// Smallest number of bytes.
        min: u64,
        /// Largest number of bytes.
        max: u64,
    },
    /// As `Memory`, or a percentage of `maxmemory`.
    MemoryOrPercent,
    /// One of these words, in any case.
    Choice(&'static [&'static str]),
    /// Several of these words, in any case.
    Flags(&'static [&'static str]),
    /// One string.
    Text,
    /// Several words in one directive; the text is the syntax for the documentation.
    Words(&'static str),
    /// As `Words`, but the directive may have several lines that add up.
    Lines(&'static str),
}

impl ParamKind {
    /// Whether a directive of this kind may have any number of arguments.
    pub(super) fn takes_many(&self) -> bool {
        matches!(
            self,
            ParamKind::Flags(_) | ParamKind::Words(_) | ParamKind::Lines(_)
        )
    }

    /// The accepted values, for `--help` and the manual.
    pub fn describe(&self) -> String {
        match self {
            ParamKind::Bool => "yes, no".into(),
            ParamKind::Int { min, max } => match (*min, *max) {
                (min, i64::MAX) => format!("integer from {min}"),
                (0, 2_147_483_647) => "integer from 0".into(),
                (1, 2_147_483_647) => "integer from 1".into(),
                (-2_147_483_648, 2_147_483_647) => "integer".into(),
                (min, max) => format!("integer {min} to {max}"),
            },
            ParamKind::OfModule { min, max, .. } => format!("integer {min} to {max}"),
            ParamKind::Ratio(_) => "number between 0 and 1".into(),
            ParamKind::Octal => "octal 0 to 777".into(),
            ParamKind::Memory { .. } => "bytes, with units".into(),
            ParamKind::MemoryOrPercent => "bytes, with units, or N%".into(),
            ParamKind::Choice(names) => names.join(", "),
            ParamKind::Flags(names) => format!("any of {}", names.join(", ")),
            ParamKind::Text => "text".into(),
            ParamKind::Words(syntax) | ParamKind::Lines(syntax) => (*syntax).into(),
        }
    }
}
