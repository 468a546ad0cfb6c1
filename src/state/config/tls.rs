//! Parameters of TLS that are names: of protocols and ciphers.

use super::kind::ParamKind;
use super::value::{Field, Source, ValueError, utf8};
use crate::tls::{Protocols, SuiteNames};

/// Text that must mean something to TLS; kept as it was given.
macro_rules! meaning {
    ($(#[$meta:meta])* $name:ident: $kind:ty = $parse:path) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, Default)]
        pub struct $name(String, $kind);

        impl $name {
            /// What the text means.
            pub fn meaning(&self) -> &$kind {
                &self.1
            }
        }

        impl Field for $name {
            fn assign(&mut self, _: &ParamKind, words: &[Vec<u8>], _: Source) -> Result<(), ValueError> {
                let word = words.first().ok_or(ValueError::Arity)?;
                let text = utf8(word)?;
                let meaning = $parse(text).map_err(ValueError::Named)?;
                *self = $name(text.to_owned(), meaning);
                Ok(())
            }

            fn text(&self, _: &ParamKind) -> Vec<u8> {
                self.0.clone().into_bytes()
            }
        }
    };
}

meaning! {
    /// Versions of the protocol.
    TlsProtocols: Protocols = Protocols::parse
}

meaning! {
    /// Ciphers of TLS 1.2.
    TlsCiphers: SuiteNames = SuiteNames::of_12
}

meaning! {
    /// Ciphers of TLS 1.3.
    TlsCiphersuites: SuiteNames = SuiteNames::of_13
}
