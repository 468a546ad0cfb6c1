//! The names of the subject of a certificate.
//!
//! The subject can influence what its certificate contains, so a name is compared as it is: a
//! text of bytes, as long as it says. What is in an encoding whose bytes mean something else than
//! the same bytes of a user's name, or has a NUL in it, is no name.

use der::asn1::AnyRef;
use der::{Decode, Reader, SliceReader, Tag};

/// Where names stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameField {
    /// The common name of the subject; the first one, if there are several.
    CommonName,
    /// The URIs among the alternative names of the subject.
    Uri,
}

/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
/// 2.5.29.17
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];
/// A URI among alternative names: tag 6 of the context.
const URI: u32 = 6;
/// The extensions of a certificate: tag 3 of the context.
const EXTENSIONS: u32 = 3;
/// Elements between the serial number and the subject: how it is signed, by whom, and for how long.
const BEFORE_SUBJECT: usize = 3;

/// A name in a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The bytes that stand there.
    pub bytes: &'a [u8],
    /// Whether they may be the name of a user.
    pub is_plain: bool,
}

/// The names of a certificate in DER, in the order in which they stand. There are none if the
/// certificate, or the part of it that has names, is malformed or stands there twice.
pub fn names(certificate: &[u8], field: NameField) -> Vec<Name<'_>> {
    let found = match field {
        NameField::CommonName => common_name(certificate).map(|name| name.into_iter().collect()),
        NameField::Uri => uris(certificate),
    };
    found.unwrap_or_default()
}

/// What stands in a sequence or set, one after another.
fn elements(bytes: &[u8]) -> der::Result<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(bytes)?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(AnyRef::decode(&mut reader)?);
    }
    Ok(found)
}

/// The same of an element that must have this tag.
pub(super) fn inside(element: AnyRef<'_>, tag: Tag) -> der::Result<Vec<AnyRef<'_>>> {
    element.header().tag().assert_eq(tag)?;
    elements(element.value())
}

/// The number of a tag of the context.
fn context(element: &AnyRef<'_>) -> Option<u32> {
    match element.header().tag() {
        Tag::ContextSpecific { number, .. } => Some(number.value()),
        _ => None,
    }
}

/// What is signed: the elements from the serial number on.
pub(super) fn signed(certificate: &[u8]) -> der::Result<Vec<AnyRef<'_>>> {
    let whole = AnyRef::from_der(certificate)?;
    let parts = inside(whole, Tag::Sequence)?;
    let mut signed = match parts.first() {
        Some(first) => inside(*first, Tag::Sequence)?,
        None => return Ok(Vec::new()),
    };
    // The version may be left out.
    if signed.first().and_then(context) == Some(0) {
        signed.remove(0);
    }
    Ok(signed)
}

fn common_name(certificate: &[u8]) -> der::Result<Option<Name<'_>>> {
    let signed = signed(certificate)?;
    let Some(subject) = signed.get(1 + BEFORE_SUBJECT) else {
        return Ok(None);
    };
    let mut first = None;
    for set in inside(*subject, Tag::Sequence)? {
        for attribute in inside(set, Tag::Set)? {
            if let [kind, value] = inside(attribute, Tag::Sequence)?.as_slice()
                && kind.header().tag() == Tag::ObjectIdentifier
                && kind.value() == COMMON_NAME
                && first.is_none()
            {
                first = Some(Name {
                    bytes: value.value(),
                    is_plain: is_plain(value.header().tag(), value.value()),
                });
            }
        }
    }
    Ok(first)
}

fn uris(certificate: &[u8]) -> der::Result<Vec<Name<'_>>> {
    let signed = signed(certificate)?;
    let extensions = signed.iter().find(|part| context(part) == Some(EXTENSIONS));
    let Some(extensions) = extensions else {
        return Ok(Vec::new());
    };
    let mut found: Option<Vec<Name<'_>>> = None;
    for list in elements(extensions.value())? {
        for extension in inside(list, Tag::Sequence)? {
            let parts = inside(extension, Tag::Sequence)?;
            let (Some(kind), Some(value)) = (parts.first(), parts.last()) else {
                continue;
            };
            if kind.value() != ALTERNATIVE_NAMES {
                continue;
            }
            if found.is_some() {
                return Ok(Vec::new());
            }
            value.header().tag().assert_eq(Tag::OctetString)?;
            let names = inside(AnyRef::from_der(value.value())?, Tag::Sequence)?;
            let uris = names.iter().filter(|name| context(name) == Some(URI));
            found = Some(
                uris.map(|uri| Name {
                    bytes: uri.value(),
                    is_plain: is_plain(Tag::Ia5String, uri.value()),
                })
                .collect(),
            );
        }
    }
    Ok(found.unwrap_or_default())
}

/// Whether a text has an encoding of which it is a right one, and whose bytes are those of a name.
fn is_plain(tag: Tag, bytes: &[u8]) -> bool {
    let right = match tag {
        Tag::Utf8String => std::str::from_utf8(bytes).is_ok(),
        // Those of them that differ from ASCII differ from each other as well.
        Tag::PrintableString | Tag::Ia5String | Tag::TeletexString => bytes.is_ascii(),
        _ => false,
    };
    right && !bytes.is_empty() && !bytes.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::string::{BmpString, PrintableString, TeletexString, UniversalString};
    use rcgen::{CertificateParams, CustomExtension, DnType, DnValue, KeyPair, SanType};

    fn certificate(change: impl FnOnce(&mut CertificateParams)) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn called(value: impl Into<DnValue>) -> Vec<u8> {
        let value = value.into();
        certificate(|params| params.distinguished_name.push(DnType::CommonName, value))
    }

    fn shown(certificate: &[u8], field: NameField) -> Vec<(String, bool)> {
        let names = names(certificate, field).into_iter();
        let text = |name: Name<'_>| String::from_utf8_lossy(name.bytes).into_owned();
        names.map(|name| (text(name), name.is_plain)).collect()
    }

    fn common(certificate: &[u8]) -> Option<(String, bool)> {
        let mut names = shown(certificate, NameField::CommonName);
        assert!(names.len() <= 1);
        names.pop()
    }

    #[test]
    fn the_common_name_is_what_stands_there() {
        for name in ["admin", "Jürgen", "a name with spaces", "x"] {
            assert_eq!(common(&called(name)), Some((name.into(), true)));
        }
        let long = "x".repeat(100_000);
        assert_eq!(common(&called(long.clone())), Some((long, true)));
        for value in [
            DnValue::PrintableString(PrintableString::try_from("admin").unwrap()),
            DnValue::TeletexString(TeletexString::try_from("admin").unwrap()),
        ] {
            assert_eq!(common(&called(value)), Some(("admin".into(), true)));
        }
        assert_eq!(common(&certificate(|_| ())), None);
        let other = certificate(|params| {
            let names = &mut params.distinguished_name;
            names.push(DnType::OrganizationName, "admin");
        });
        assert_eq!(common(&other), None);
    }

    #[test]
    fn a_name_with_a_nul_or_without_bytes_is_none() {
        for name in ["admin\0attacker", "admin\0", "\0admin", ""] {
            assert_eq!(common(&called(name)), Some((name.into(), false)));
        }
    }

    #[test]
    fn bytes_that_mean_something_else_in_their_encoding_are_no_name() {
        // The bytes of "admi" are those of two characters.
        let two = BmpString::try_from("\u{6164}\u{6d69}").unwrap();
        let two = called(DnValue::BmpString(two));
        assert_eq!(common(&two), Some(("admi".into(), false)));
        let wide = UniversalString::try_from("admin").unwrap();
        // An encoding that the library cannot tell.
        assert_eq!(common(&called(DnValue::UniversalString(wide))), None);
        // Not UTF-8, though it says so.
        let mut broken = called("admin-broken");
        let at = broken.windows(12).rposition(|part| part == b"admin-broken");
        broken[at.unwrap() + 5] = 0xff;
        assert!(!common(&broken).unwrap().1);
    }

    #[test]
    fn of_several_common_names_the_first_counts() {
        for (first, second) in [("admin", "guest"), ("guest", "admin")] {
            let both = certificate(|params| {
                let names = &mut params.distinguished_name;
                names.push(DnType::CommonName, first);
                names.push(DnType::CustomDnType(vec![2, 5, 4, 3]), second);
            });
            assert_eq!(common(&both), Some((first.into(), true)));
        }
    }

    fn uri(text: &str) -> SanType {
        SanType::URI(text.try_into().unwrap())
    }

    #[test]
    fn uris_are_taken_in_their_order_and_other_names_are_not() {
        let several = certificate(|params| {
            params.subject_alt_names = vec![
                SanType::DnsName("admin".try_into().unwrap()),
                uri("urn:user:first"),
                SanType::Rfc822Name("admin@example".try_into().unwrap()),
                uri("urn:user:second\0x"),
                uri("urn:user:third"),
            ];
        });
        let expected = [
            ("urn:user:first".to_owned(), true),
            ("urn:user:second\0x".to_owned(), false),
            ("urn:user:third".to_owned(), true),
        ];
        assert_eq!(shown(&several, NameField::Uri), expected);
        assert_eq!(shown(&called("urn:user:first"), NameField::Uri), []);
        assert_eq!(common(&several), None);
    }

    /// A second list could be another than the one that others have looked at.
    #[test]
    fn two_lists_of_alternative_names_are_none() {
        let twice = certificate(|params| {
            params.subject_alt_names = vec![uri("urn:user:first")];
            let list = vec![0x30, 5, 0x86, 3, b'u', b'r', b'n'];
            let second = CustomExtension::from_oid_content(&[2, 5, 29, 17], list);
            params.custom_extensions.push(second);
        });
        assert_eq!(shown(&twice, NameField::Uri), []);
    }

    #[test]
    fn any_bytes_may_come() {
        let good = certificate(|params| {
            params
                .distinguished_name
                .push(DnType::CommonName, "somebody");
            params.subject_alt_names = vec![uri("urn:user:first"), uri("urn:user:second")];
        });
        let both = |bytes: &[u8]| {
            names(bytes, NameField::CommonName);
            names(bytes, NameField::Uri);
        };
        for end in 0..good.len() {
            assert_eq!(names(&good[..end], NameField::CommonName), []);
            assert_eq!(names(&good[..end], NameField::Uri), []);
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            both(&bytes);
        }
    }
}
