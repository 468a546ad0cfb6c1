//! What INFO tells of certificates: their numbers, and when they end.

use super::names::{inside, signed};
use der::Tag;
use der::asn1::{AnyRef, GeneralizedTime, UtcTime};
use rustls::pki_types::CertificateDer;

/// Where the serial number and the validity stand among the signed elements.
const SERIAL: usize = 0;
const VALIDITY: usize = 3;

/// A certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Its serial number in hexadecimal digits, as OpenSSL shows it.
    pub serial: String,
    /// The last second of its validity, Unix time.
    pub not_after_s: u64,
}

impl CertificateFacts {
    /// The facts of a certificate in DER; `None` if it is malformed.
    pub(super) fn of(certificate: &[u8]) -> Option<CertificateFacts> {
        let signed = signed(certificate).ok()?;
        let serial = signed.get(SERIAL)?;
        if serial.header().tag() != Tag::Integer {
            return None;
        }
        let times = inside(*signed.get(VALIDITY)?, Tag::Sequence).ok()?;
        let [_, not_after] = times.as_slice() else {
            return None;
        };
        Some(CertificateFacts {
            serial: digits(serial.value()),
            not_after_s: unix_s(*not_after).ok()?,
        })
    }

    /// Those of the certificate that ends first.
    pub(super) fn of_first_to_end(certificates: &[CertificateDer<'_>]) -> Option<CertificateFacts> {
        let facts = certificates.iter().filter_map(|known| Self::of(known));
        facts.min_by_key(|facts| facts.not_after_s)
    }
}

fn unix_s(time: AnyRef<'_>) -> der::Result<u64> {
    let since = match time.header().tag() {
        Tag::UtcTime => time.decode_as::<UtcTime>()?.to_unix_duration(),
        _ => time.decode_as::<GeneralizedTime>()?.to_unix_duration(),
    };
    Ok(since.as_secs())
}

/// An integer in hexadecimal digits, two for each byte. Numbers below zero are forbidden, and
/// yet there are such certificates.
fn digits(integer: &[u8]) -> String {
    let is_negative = integer.first().is_some_and(|first| *first >= 0x80);
    let mut bytes = integer.to_vec();
    if is_negative {
        // The two's complement: all bits turned, and one more.
        let mut carries = true;
        for byte in bytes.iter_mut().rev() {
            let (sum, overflows) = (!*byte).overflowing_add(u8::from(carries));
            (*byte, carries) = (sum, overflows);
        }
    }
    let text: String = bytes
        .iter()
        .skip_while(|byte| **byte == 0)
        .map(|byte| format!("{byte:02X}"))
        .collect();
    match (text.is_empty(), is_negative) {
        (true, _) => "0".to_owned(),
        (false, true) => format!("-{text}"),
        (false, false) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SerialNumber, date_time_ymd};

    fn certificate(serial: &[u8], year: i32) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.serial_number = Some(SerialNumber::from_slice(serial));
        params.not_after = date_time_ymd(year, 1, 2);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    fn facts(serial: &[u8], year: i32) -> (String, u64) {
        let facts = CertificateFacts::of(&certificate(serial, year)).unwrap();
        (facts.serial, facts.not_after_s)
    }

    #[test]
    fn a_certificate_has_a_number_and_an_end() {
        // Years up to 2049 stand in another form than later ones.
        assert_eq!(facts(&[5], 2049), ("05".to_owned(), 2_493_158_400));
        assert_eq!(
            facts(&[0xab, 0xcd], 2050),
            ("ABCD".to_owned(), 2_524_694_400)
        );
    }

    #[test]
    fn numbers_are_shown_as_openssl_does() {
        for (bytes, shown) in [
            (&[0][..], "0"),
            (&[0, 0x80], "80"),
            (&[1, 0], "0100"),
            (&[0xff], "-01"),
            (&[0x80, 0], "-8000"),
            (&[], "0"),
        ] {
            assert_eq!(digits(bytes), shown, "{bytes:?}");
        }
    }

    #[test]
    fn of_several_the_first_to_end_counts() {
        let several = [2040, 2031, 2035].map(|year| certificate(&[year as u8], year));
        let first = CertificateFacts::of_first_to_end(&several).unwrap();
        assert_eq!(first, CertificateFacts::of(&several[1]).unwrap());
        assert_eq!(CertificateFacts::of_first_to_end(&[]), None);
    }

    #[test]
    fn any_bytes_may_come() {
        let good = certificate(&[1, 2, 3], 2040).to_vec();
        for end in 0..good.len() {
            assert_eq!(CertificateFacts::of(&good[..end]), None);
        }
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            let _ = CertificateFacts::of(&bytes);
        }
    }
}
