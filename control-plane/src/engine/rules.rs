//! Which version's rules a pool's prompts are rendered by, where its engines say theirs.

use prefix_picker_core::prompt::Rules;

/// The rules that more than half of the engines follow, of those whose version is known. `None`
/// where no rules have that many: then the pool's stay as they are.
///
/// Versions whose rules are equal count as one: an upgrade that changes no prompt changes nothing.
pub(crate) fn majority<'a>(versions: impl Iterator<Item = &'a str>) -> Option<Rules> {
    let mut counts: Vec<(Rules, usize)> = Vec::new();
    for version in versions {
        let rules = Rules::of_version(version);
        match counts.iter_mut().find(|(known, _)| *known == rules) {
            Some((_, count)) => *count += 1,
            None => counts.push((rules, 1)),
        }
    }
    let all: usize = counts.iter().map(|(_, count)| count).sum();
    counts
        .into_iter()
        .find(|(_, count)| count * 2 > all)
        .map(|(rules, _)| rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_known_of_no_engine() {
        assert_eq!(majority(std::iter::empty()), None);
        let newest = majority(["0.33.0", "0.33.0"].into_iter());
        assert_eq!(newest, Some(Rules::default()));
    }

    #[test]
    fn more_than_half_decide_where_rules_differ() {
        let (old, new) = ("0.31.0", "0.33.0");
        let rules = Rules::of_version;
        assert_ne!(rules(old), rules(new));
        let of = |versions: &[&str]| majority(versions.iter().copied());
        assert_eq!(of(&[old]), Some(rules(old)));
        assert_eq!(of(&[old, new]), None);
        assert_eq!(of(&[old, new, new]), Some(rules(new)));
        assert_eq!(of(&[new, old, old]), Some(rules(old)));
        // Three kinds, none with more than half.
        assert_eq!(of(&["0.22.0", old, new, new]), None);
        // What renders alike counts as one.
        assert_eq!(rules("0.29.0"), rules("0.30.1"));
        assert_eq!(of(&[new, "0.29.0", "0.30.1"]), Some(rules("0.30.0")));
    }
}
