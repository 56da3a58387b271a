//! How much the filter may do: by its configuration, or by the route.
//!
//! Envoy's wasm filter takes no configuration for a route, so a route says it in its metadata, under
//! the key `prefix-picker`: `mode` and `percent`, which go before the configuration's.

use serde::Deserialize;

use crate::config::Config;
use crate::host::Host;

/// Where the route's metadata is.
const METADATA: [&str; 4] = ["xds", "route_metadata", "filter_metadata", "prefix-picker"];

/// What is done with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The endpoints chosen are named.
    #[default]
    Enforce,
    /// They are chosen and counted, and Envoy does what it would have done.
    Shadow,
    /// Nothing.
    Off,
}

impl Mode {
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"enforce" => Some(Self::Enforce),
            b"shadow" => Some(Self::Shadow),
            b"off" => Some(Self::Off),
            _ => None,
        }
    }

    /// The mode of the request in hand. Of those to enforce, `percent` in a hundred are; the others are
    /// in shadow. What cannot be read of the route's metadata says nothing.
    #[must_use]
    pub fn of_request(host: &impl Host, config: &Config, random: u64) -> Self {
        let field = |name| {
            let [a, b, c, d] = METADATA;
            host.property(&[a, b, c, d, name])
        };
        let mode = field("mode").and_then(|name| Self::named(&name));
        let mode = mode.unwrap_or(config.mode);
        if mode != Self::Enforce {
            return mode;
        }
        let percent = field("percent").and_then(|bytes| percent(&bytes));
        let percent = percent.unwrap_or(config.percent);
        if random % 100 < u64::from(percent) {
            Self::Enforce
        } else {
            Self::Shadow
        }
    }
}

/// A text, or a number as Envoy gives it: eight bytes of a float.
fn percent(bytes: &[u8]) -> Option<u8> {
    let text = core::str::from_utf8(bytes).ok();
    let number = match text.and_then(|text| text.trim().parse::<f64>().ok()) {
        Some(number) => number,
        None => f64::from_le_bytes(bytes.try_into().ok()?),
    };
    let whole = (0..=100).rev().find(|&n| f64::from(n) <= number);
    whole.filter(|_| number <= 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::testing::FakeHost;

    fn config(more: &str) -> Config {
        let json = format!(r#"{{"control_plane": {{"cluster": "c", "token": "t"}} {more}}}"#);
        config::parse(json.as_bytes()).unwrap()
    }

    fn set(host: &FakeHost, name: &str, value: &[u8]) {
        let name = format!("xds.route_metadata.filter_metadata.prefix-picker.{name}");
        host.properties.borrow_mut().insert(name, value.to_vec());
    }

    fn enforced(host: &FakeHost, config: &Config) -> usize {
        let modes = (0..100).map(|random| Mode::of_request(host, config, random));
        modes.filter(|&mode| mode == Mode::Enforce).count()
    }

    #[test]
    fn the_routes_word_goes_before_the_configurations() {
        let host = FakeHost::default();
        let plain = config("");
        assert_eq!(Mode::of_request(&host, &plain, 99), Mode::Enforce);
        let shadow = config(r#", "mode": "shadow""#);
        assert_eq!(Mode::of_request(&host, &shadow, 0), Mode::Shadow);
        set(&host, "mode", b"off");
        assert_eq!(Mode::of_request(&host, &plain, 0), Mode::Off);
        set(&host, "mode", b"enforce");
        assert_eq!(Mode::of_request(&host, &shadow, 0), Mode::Enforce);
        set(&host, "mode", b"sometimes");
        assert_eq!(Mode::of_request(&host, &shadow, 0), Mode::Shadow);
    }

    #[test]
    fn so_many_in_a_hundred_are_enforced_and_the_others_in_shadow() {
        let host = FakeHost::default();
        assert_eq!(enforced(&host, &config(r#", "percent": 30"#)), 30);
        for (value, expected) in [
            (&b"5"[..], 5),
            (b"0", 0),
            (b"100", 100),
            (&25.0f64.to_le_bytes(), 25),
            (b"101", 30),
            (b"-1", 30),
            (b"many", 30),
            (&f64::NAN.to_le_bytes(), 30),
        ] {
            set(&host, "percent", value);
            let config = config(r#", "percent": 30"#);
            assert_eq!(enforced(&host, &config), expected, "{value:?}");
        }
        let shadow = Mode::of_request(&host, &config(r#", "percent": 0"#), 0);
        assert_eq!(shadow, Mode::Shadow);
    }
}
