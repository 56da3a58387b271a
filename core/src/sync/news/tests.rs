use super::*;
use crate::sync::tests::of_hex;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn work() -> Vec<PlaceWork> {
    let work = |place, requests| PlaceWork {
        place,
        requests,
        tokens: u64::from(requests) * 1_000,
        context: u64::from(requests) * 8_000 + 7,
    };
    vec![work(0x1122_3344_5566_7788, 3), work(u64::MAX, 0)]
}

fn sent() -> Vec<Sent> {
    vec![
        Sent {
            key: 0xfeed,
            place: u64::MAX,
            age_ms: 12,
            life_ms: 9_988,
            span: 4,
            marks: vec![1, 0xffff, 300],
        },
        Sent {
            key: 1,
            life_ms: 5,
            ..Sent::default()
        },
    ]
}

fn report() -> Report {
    Report {
        gateway: "envoy-größe".into(),
        seq: 9,
        instance: 77,
        cursor: 1_000,
        seen: 31,
        wait_ms: 1_000,
        work: work(),
        sent: sent(),
    }
}

fn answer() -> OthersNews {
    OthersNews {
        instance: 77,
        cursor: 1_002,
        seen: 40,
        more: true,
        gateways: 2,
        work: work(),
        sent: sent(),
    }
}

#[test]
fn messages_come_back_as_they_were() {
    assert_eq!(Report::decode(&report().encode().unwrap()), Ok(report()));
    assert_eq!(
        OthersNews::decode(&answer().encode().unwrap()),
        Ok(answer())
    );
    let nothing = OthersNews::default();
    assert_eq!(OthersNews::decode(&nothing.encode().unwrap()), Ok(nothing));
    // One is not taken for the other.
    assert!(Report::decode(&answer().encode().unwrap()).is_err());
}

#[test]
fn any_flipped_bit_and_any_cut_is_refused() {
    let (report, answer) = (report().encode().unwrap(), answer().encode().unwrap());
    let refused =
        |bytes: &[u8]| Report::decode(bytes).is_err() && OthersNews::decode(bytes).is_err();
    for bytes in [report, answer] {
        for bit in 0..bytes.len() * 8 {
            // The minor version, which is only of interest with the checksum over it.
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(refused(&bad), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(refused(&bytes[..end]), "cut at {end}");
        }
        let longer = [&bytes[..], b"more"].concat();
        assert!(refused(&longer));
    }
}

#[test]
fn what_is_too_long_is_neither_sent_nor_taken() {
    let many = |work: usize, sent: usize| Report {
        work: vec![PlaceWork::default(); work],
        sent: vec![Sent::default(); sent],
        ..report()
    };
    assert!(many(WORK_MAX, REPORTED_MAX).encode().is_ok());
    assert!(many(WORK_MAX + 1, 0).encode().is_err());
    assert!(many(0, REPORTED_MAX + 1).encode().is_err());
    let mut long = report();
    long.sent[0].marks = vec![0; MARKS_MAX + 1];
    assert!(long.encode().is_err());
    for name in [String::new(), "x".repeat(NAME_BYTES_MAX + 1)] {
        let named = Report {
            gateway: name,
            ..report()
        };
        let taken = named.encode().and_then(|bytes| Report::decode(&bytes));
        assert!(taken.is_err());
    }
    // A claim is not for ever.
    let mut lasting = report();
    lasting.sent[0].life_ms = u32::MAX;
    let taken = Report::decode(&lasting.encode().unwrap()).unwrap();
    assert_eq!(taken.sent[0].life_ms, LIFE_MAX_MS);
    // The largest report fits where it is posted to.
    let mut largest = many(WORK_MAX, REPORTED_MAX);
    for sent in &mut largest.sent {
        sent.marks = vec![0; MARKS_MAX];
    }
    assert!(largest.encode().unwrap().len() < 256 << 10);
}

/// Frozen messages, made by `generate.py` beside them: this build must write the same.
#[test]
fn version_1_3_is_frozen() {
    let hex = |bytes: Vec<u8>| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let frozen = include_str!("../../../../tests/vectors/wire/v1.3/news-report.hex");
    assert_eq!(hex(report().encode().unwrap()), frozen.trim());
    let frozen = include_str!("../../../../tests/vectors/wire/v1.3/news-answer.hex");
    assert_eq!(hex(answer().encode().unwrap()), frozen.trim());
}

/// What builds of version 1.2 wrote is still read.
#[test]
fn version_1_2_is_read() {
    let frozen = include_str!("../../../../tests/vectors/wire/v1.2/news-report.hex");
    assert_eq!(Report::decode(&of_hex(frozen)).unwrap(), report());
    let frozen = include_str!("../../../../tests/vectors/wire/v1.2/news-answer.hex");
    assert_eq!(OthersNews::decode(&of_hex(frozen)).unwrap(), answer());
}

#[cfg(not(target_arch = "wasm32"))]
proptest::proptest! {
    #[test]
    fn decoders_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let _ = Report::decode(&bytes);
        let _ = OthersNews::decode(&bytes);
        // Beyond the checksum, too.
        for magic in [REPORT, ANSWER] {
            let whole = frame(magic, &bytes).unwrap();
            let _ = Report::decode(&whole);
            let _ = OthersNews::decode(&whole);
        }
    }
}
