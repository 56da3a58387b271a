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
}
