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
    /// Without quotes YAML takes `off` and `on` for a truth value, which Envoy gives as one byte.
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"enforce" | b"on" | [1] => Some(Self::Enforce),
            b"shadow" => Some(Self::Shadow),
            b"off" | [0] => Some(Self::Off),
            _ => None,
        }
    }

    /// The mode of the request in hand. Of those to enforce, `percent` in a hundred are; the others are
    /// in shadow.
    ///
    /// # Errors
    /// The field of the route's metadata that cannot be read. Such a request is best in shadow: whoever
    /// wrote the field wanted less than the configuration's.
    pub fn of_request(
        host: &impl Host,
        config: &Config,
        random: u64,
    ) -> Result<Self, &'static str> {
        let field = |name| {
            let [a, b, c, d] = METADATA;
            host.property(&[a, b, c, d, name])
        };
        let mode = match field("mode") {
            Some(name) => Self::named(&name).ok_or("mode")?,
            None => config.mode,
        };
        if mode != Self::Enforce {
            return Ok(mode);
        }
        let percent = match field("percent") {
            Some(bytes) => percent(&bytes).ok_or("percent")?,
            None => config.percent,
        };
        Ok(if random % 100 < u64::from(percent) {
            Self::Enforce
        } else {
            Self::Shadow
        })
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
        modes.filter(|&mode| mode == Ok(Mode::Enforce)).count()
    }

    #[test]
    fn the_routes_word_goes_before_the_configurations() {
        let host = FakeHost::default();
        let plain = config("");
        assert_eq!(Mode::of_request(&host, &plain, 99), Ok(Mode::Enforce));
        let shadow = config(r#", "mode": "shadow""#);
        assert_eq!(Mode::of_request(&host, &shadow, 0), Ok(Mode::Shadow));
        for (value, mode) in [
            (&b"off"[..], Mode::Off),
            (b"\0", Mode::Off),
            (b"\x01", Mode::Enforce),
            (b"enforce", Mode::Enforce),
            (b"shadow", Mode::Shadow),
        ] {
            set(&host, "mode", value);
            for config in [&plain, &shadow] {
                assert_eq!(Mode::of_request(&host, config, 0), Ok(mode), "{value:?}");
            }
        }
        for odd in [&b"sometimes"[..], b"Enforce", b"", &5.0f64.to_le_bytes()] {
            set(&host, "mode", odd);
            assert_eq!(Mode::of_request(&host, &plain, 0), Err("mode"), "{odd:?}");
        }
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
            (b"101", 0),
            (b"-1", 0),
            (b"many", 0),
            (b"100%", 0),
            (b"", 0),
            (&f64::NAN.to_le_bytes(), 0),
        ] {
            set(&host, "percent", value);
            let config = config(r#", "percent": 30"#);
            assert_eq!(enforced(&host, &config), expected, "{value:?}");
        }
        let shadow = Mode::of_request(&host, &config(r#", "percent": 0"#), 0);
        assert_eq!(shadow, Err("percent"));
    }
}
