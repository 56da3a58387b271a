//! Claims as other gateways hear of them: with times that no clock has to agree on.

use super::{Claim, MARKS_MAX, Marks};
use crate::sync::news::Sent;

impl Claim {
    /// What to tell at `now_ms`; `None`: it is over.
    #[must_use]
    pub fn to_sent(&self, now_ms: u64) -> Option<Sent> {
        let ms = |ms: u64| u32::try_from(ms).unwrap_or(u32::MAX);
        let marks = self.marks.marks.iter().take(self.marks.len.into());
        self.is_live(now_ms).then(|| Sent {
            key: self.key,
            place: self.place,
            age_ms: ms(now_ms.saturating_sub(self.since_ms)),
            life_ms: ms(self.until_ms - now_ms),
            span: self.marks.span,
            marks: marks.copied().collect(),
        })
    }

    /// What was heard at `now_ms`; `None`: it cannot be one of ours.
    #[must_use]
    pub fn of_sent(sent: &Sent, now_ms: u64) -> Option<Self> {
        let mut marks = Marks {
            span: sent.span,
            len: u8::try_from(sent.marks.len()).ok()?,
            marks: [0; MARKS_MAX],
        };
        let places = marks.marks.get_mut(..sent.marks.len())?;
        places.copy_from_slice(&sent.marks);
        Some(Self {
            key: sent.key,
            place: sent.place,
            marks,
            since_ms: now_ms.saturating_sub(sent.age_ms.into()),
            until_ms: now_ms.saturating_add(sent.life_ms.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::anchors;
    use crate::sync::news;
    #[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn another_gateway_gets_the_claim_by_its_own_clock() {
        let hashes: Vec<_> = (1..200).map(crate::ids::BlockHash).collect();
        let anchor = anchors(&hashes).into_iter().next().unwrap();
        let claim = Claim {
            key: anchor.key,
            place: 7,
            marks: anchor.marks,
            since_ms: 10_000,
            until_ms: 15_000,
        };
        let sent = claim.to_sent(11_000).unwrap();
        assert_eq!((sent.age_ms, sent.life_ms), (1_000, 4_000));
        assert!(sent.marks.len() <= news::MARKS_MAX && !sent.marks.is_empty());
        let there = Claim::of_sent(&sent, 500).unwrap();
        assert_eq!((there.since_ms, there.until_ms), (0, 4_500));
        assert_eq!(
            (there.key, there.place, there.marks),
            (claim.key, 7, claim.marks)
        );
        assert_eq!(claim.to_sent(15_000), None);
        let long = Sent {
            marks: vec![0; MARKS_MAX + 1],
            ..sent
        };
        assert_eq!(Claim::of_sent(&long, 0), None);
    }
}
