//! Damaged bytes are refused or harmless.

// Plain tests natively and under WASI; this where there is no test harness.
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// A small table with branches, splits and both tiers, in one page; and its longest prompt.
fn small_page() -> (Vec<u8>, TableShape, Vec<BlockHash>) {
    let mut trie = Trie::default();
    let trunk = branch(&[], 0, 1, 70);
    for replica in 0..20u16 {
        let at = usize::from(replica);
        let chain = branch(&trunk, 40 + at, at as u64 + 9, 3);
        trie.hold(
            &chain,
            &tokens_of(&chain),
            ReplicaIndex(replica),
            30 + at,
            43 + at,
        );
    }
    let store = filled(&trie, 200, TableStore::with_pages(EPOCH, 1 << 20, 1));
    (store.page(0), shape(&store), trunk)
}

#[test]
fn any_flipped_bit_in_a_page_is_refused() {
    let (page, ..) = small_page();
    assert!(PageRef::verify(&page).is_ok());
    let mut damaged = page.clone();
    for at in 0..page.len() {
        for bit in 0..8 {
            damaged[at] ^= 1 << bit;
            assert!(PageRef::verify(&damaged).is_err(), "byte {at} bit {bit}");
            damaged[at] ^= 1 << bit;
        }
    }
    for len in 0..page.len() {
        assert!(PageRef::verify(&page[..len]).is_err(), "{len} bytes");
    }
    damaged.push(0);
    assert!(PageRef::verify(&damaged).is_err());
}

#[test]
fn a_damaged_page_never_panics_a_reader() {
    let (page, shape, prompt) = small_page();
    for at in 0..page.len() {
        for flip in [0x01, 0x10, 0x80, 0xff] {
            let mut damaged = page.clone();
            damaged[at] ^= flip;
            lookup(&shape, &prompt, &mut |_| Some(damaged.clone()), UNLIMITED);
        }
    }
    for len in 0..page.len() {
        lookup(
            &shape,
            &prompt,
            &mut |_| Some(page[..len].to_vec()),
            UNLIMITED,
        );
    }
}

#[test]
fn damaged_groups_never_panic() {
    let (page, ..) = small_page();
    let page = PageRef::verify(&page).expect("a good page");
    for (anchor, body) in page.groups() {
        assert!(decode_group(anchor, body).is_ok());
        for at in 0..body.len() {
            for flip in 1..=255u8 {
                let mut damaged = body.to_vec();
                damaged[at] ^= flip;
                let _ = decode_group(anchor, &damaged);
            }
        }
        for len in 0..body.len() {
            let _ = decode_group(anchor, &body[..len]);
        }
    }
}

#[test]
fn a_page_of_another_table_is_a_miss() {
    let (page, shape, prompt) = small_page();
    let found = |shape: &TableShape| {
        lookup(
            shape,
            &prompt,
            &mut |_| Some(page.clone()),
            LookupLimits::default(),
        )
        .replicas
        .len()
    };
    assert_eq!(found(&shape), 20);
    assert_eq!(
        found(&TableShape {
            epoch: Epoch(8),
            ..shape
        }),
        0
    );
    assert_eq!(
        found(&TableShape {
            generation: 2,
            ..shape
        }),
        0
    );
    // The page with index 0 comes for every index.
    let many = TableShape {
        page_count: 1 << 16,
        ..shape
    };
    assert_eq!(found(&many), 0);
    let none = lookup(&shape, &prompt, &mut |_| None, LookupLimits::default());
    assert_eq!(
        none,
        Matches {
            replicas: vec![],
            reads: 1
        }
    );
    let nothing = lookup(
        &shape,
        &[],
        &mut |_| panic!("no read"),
        LookupLimits::default(),
    );
    assert_eq!(nothing, Matches::default());
    let no_pages = TableShape {
        page_count: 0,
        ..shape
    };
    lookup(
        &no_pages,
        &prompt,
        &mut |_| Some(page.clone()),
        LookupLimits::default(),
    );
}

#[test]
fn other_versions_are_refused_by_name() {
    let (page, ..) = small_page();
    let with = |at: usize, byte: u8| {
        let mut page = page.clone();
        page[at] = byte;
        PageRef::parse(&page).err()
    };
    assert_eq!(with(0, b'X'), Some(PageError::Magic));
    assert_eq!(
        with(4, 2),
        Some(PageError::Version {
            format: 2,
            hash_domain: 1
        })
    );
    assert_eq!(
        with(6, 9),
        Some(PageError::Version {
            format: 1,
            hash_domain: 9
        })
    );
    assert_eq!(with(36, 9), Some(PageError::Length));
    assert_eq!(PageRef::parse(&page[..47]).err(), Some(PageError::Length));
}
