//! Prometheus' text form, any metric: names, labels, values. Lines that are not understood are
//! passed over.

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    /// The metric's name.
    pub(super) name: &'a str,
    labels: &'a str,
    /// Its value.
    pub(super) value: f64,
}

impl<'a> Sample<'a> {
    /// A label's value, escapes as they are.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        crate::scrape::parse::label(self.labels, name)
    }
}

/// All lines of a text.
pub(super) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(|line| {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at_checked(end)?;
        if name.starts_with('#') {
            return None;
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            // A label's value may hold a brace; the last one ends them.
            Some(rest) => rest.rsplit_once('}')?,
            None => ("", rest),
        };
        let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
        Some(Sample {
            name,
            labels,
            value,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = "# HELP a b\na_total{x=\"1}\",y=\"z\"} 3\nb 0.5 17\n\nbroken\nc{} NaN\n";
        let all: Vec<_> = samples(text).collect();
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].name, all[0].value), ("a_total", 3.0));
        assert_eq!(
            (all[0].label("x"), all[0].label("y")),
            (Some("1}"), Some("z"))
        );
        assert_eq!(
            (all[1].name, all[1].value, all[1].label("x")),
            ("b", 0.5, None)
        );
    }
}
