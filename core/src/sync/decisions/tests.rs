use super::*;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn decisions() -> Decisions {
    let mark = |key, tokens| Mark { key, tokens };
    let shadow = Decision {
        chosen: 0x1122_3344_5566_7788,
        prompt_tokens: 4_210,
        chosen_tokens: 4_096,
        served_tokens: 16,
        told: Some(Told {
            prompt_tokens: 4_200,
            cached_tokens: 32,
        }),
        marks: vec![
            mark(0xfeed, 1_024),
            mark(u64::MAX, 2_048),
            mark(1, u32::MAX),
        ],
        reason: 4,
        first: 0x0102_0304_0506_0708,
        second: u64::MAX - 1,
        ..Decision::default()
    };
    let enforced = Decision {
        enforced: true,
        agreed: true,
        chosen: 1,
        prompt_tokens: 9,
        ..Decision::default()
    };
    let other = Other {
        enforced: true,
        reason: 17,
        chosen: 0x99aa_bbcc_ddee_ff00,
        prompt_tokens: 300_000,
        status: 503,
    };
    Decisions {
        lost: 3,
        records: vec![shadow, enforced],
        others: vec![other, Other::default()],
        counts: vec![(4, 1), (17, u32::MAX)],
    }
}

/// As far as 1.0 knows it.
fn decisions_1_0() -> Decisions {
    let mut decisions = decisions();
    decisions.others.clear();
    decisions.counts.clear();
    for record in &mut decisions.records {
        (record.reason, record.first, record.second) = (0, 0, 0);
    }
    decisions
}

fn frozen(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.trim().len()).step_by(2).map(byte).collect()
}

#[test]
fn a_message_comes_back_as_it_was() {
    for decisions in [decisions(), Decisions::default()] {
        let bytes = decisions.encode().unwrap();
        assert_eq!(Decisions::decode(&bytes), Ok(decisions));
    }
}

#[test]
fn any_flipped_bit_and_any_cut_is_refused() {
    let bytes = decisions().encode().unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Decisions::decode(&bad).is_err(), "bit {bit}");
    }
    for end in 0..bytes.len() {
        assert!(Decisions::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(Decisions::decode(&[&bytes[..], b"more"].concat()).is_err());
}

/// As a later version would write it.
#[test]
fn what_comes_behind_known_fields_is_passed_over() {
    let decisions = decisions();
    let mut w = Writer::default();
    let item = |w: &mut Writer, bytes: Vec<u8>| {
        let bytes = [&bytes[..], b"later"].concat();
        w.u16(u16::try_from(bytes.len()).unwrap());
        w.raw(&bytes);
        Ok(())
    };
    w.u32(3);
    w.list(&decisions.records, |w, record| item(w, record.encode()?))
        .unwrap();
    w.list(&decisions.others, |w, other| item(w, other.encode()))
        .unwrap();
    w.list(&decisions.counts, |w, &(reason, count)| {
        w.u8(reason);
        w.u32(count);
        Ok(())
    })
    .unwrap();
    w.raw(b"later");
    let mut preamble = Writer::default();
    preamble.raw(&MAGIC);
    preamble.u16(MAJOR);
    preamble.u16(MINOR + 1);
    let bytes = framed(preamble, &w.into_bytes()).unwrap();
    assert_eq!(Decisions::decode(&bytes), Ok(decisions));
}

/// What a control plane of 1.0 does with a message of this version: it reads the records up to their
/// marks and passes over the rest.
#[test]
fn a_reader_of_1_0_finds_what_it_knows() {
    let bytes = decisions().encode().unwrap();
    let mut r = unframe(MAGIC, &bytes).unwrap();
    let lost = r.u32().unwrap();
    let records = r.list(|r| {
        let len = usize::from(r.u16()?);
        let mut r = Reader::new(r.take(len)?);
        let (flags, chosen) = (r.u8()?, r.u64()?);
        let tokens = [r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?];
        let marks = r.list(|r| Ok((r.u64()?, r.u32()?)))?;
        Ok((flags, chosen, tokens, marks.len()))
    });
    let expected = [
        (
            TOLD,
            0x1122_3344_5566_7788,
            [4_210, 4_096, 16, 4_200, 32],
            3,
        ),
        (ENFORCED | AGREED, 1, [9, 0, 0, 0, 0], 0),
    ];
    assert_eq!((lost, records), (3, Ok(expected.to_vec())));
}

/// And the other way round, with the message that 1.0 froze.
#[test]
fn what_a_gateway_of_1_0_tells_is_read() {
    let hex = include_str!("../../../../tests/vectors/wire/decisions-v1.0/decisions.hex");
    assert_eq!(Decisions::decode(&frozen(hex)), Ok(decisions_1_0()));
}

#[test]
fn what_is_too_much_is_not_sent_and_the_most_fits() {
    let full = Decision {
        marks: vec![Mark::default(); MARKS_MAX],
        ..Decision::default()
    };
    let mut many = Decisions {
        lost: 0,
        records: vec![full; RECORDS_MAX],
        others: vec![Other::default(); OTHERS_MAX],
        counts: (0..=u8::MAX).map(|code| (code, 1)).collect(),
    };
    // Where it is posted to, bodies may have 256 KiB.
    assert!(many.encode().unwrap().len() < 128 << 10);
    many.records.push(Decision::default());
    assert!(many.encode().is_err());
    many.records.truncate(1);
    many.records[0].marks.push(Mark::default());
    assert!(many.encode().is_err());
    many.records.clear();
    many.others.push(Other::default());
    assert!(many.encode().is_err());
}

/// Frozen, made by `generate.py` beside it: this build must write the same.
#[test]
fn version_1_1_is_frozen() {
    let bytes = decisions().encode().unwrap();
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    let frozen = include_str!("../../../../tests/vectors/wire/decisions-v1.1/decisions.hex");
    assert_eq!(hex, frozen.trim());
}

#[test]
fn prompts_that_share_a_beginning_share_marks_near_its_end() {
    let hashes = |shared: u64, own: u64, blocks: u64| -> Vec<BlockHash> {
        let of = |at| BlockHash(if at < shared { at } else { own + at });
        (0..blocks).map(of).collect()
    };
    for (shared, a, b) in [
        (5, 9, 20),
        (32, 32, 32),
        (100, 110, 1_000),
        (999, 1_000, 1_040),
    ] {
        let [a, b] = [(1 << 32, a), (2 << 32, b)]
            .map(|(own, blocks)| marks(&hashes(shared, own, blocks), |blocks| blocks));
        assert!(a.len() <= MARKS_MAX && b.len() <= MARKS_MAX);
        let common = b.iter().filter(|mark| a.contains(mark)).map(|m| m.tokens);
        let deepest = u64::from(common.max().unwrap_or(0));
        let last = |marks: &[Mark]| u64::from(marks.last().unwrap().tokens);
        let longest = last(&a).max(last(&b));
        assert!(deepest <= shared && deepest + longest.div_ceil(16) > shared);
    }
    assert_eq!(marks(&[], |blocks| blocks), vec![]);
    // Blocks that are no whole block of the engine's.
    let few = marks(&hashes(3, 0, 3), |blocks| blocks / 2 * 16);
    assert_eq!(few.iter().map(|mark| mark.key).collect::<Vec<_>>(), [1, 2]);
}

#[cfg(not(target_arch = "wasm32"))]
proptest::proptest! {
    #[test]
    fn decoders_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let _ = Decisions::decode(&bytes);
        let _ = Decision::decode(&bytes);
        // Beyond the checksum, too.
        let mut preamble = Writer::default();
        preamble.raw(&MAGIC);
        preamble.u16(MAJOR);
        preamble.u16(MINOR);
        let _ = Decisions::decode(&framed(preamble, &bytes).unwrap());
    }
}
