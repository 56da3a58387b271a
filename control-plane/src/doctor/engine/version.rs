//! The engine's version, and what is odd about it.

use crate::doctor::item::Item;

/// Oldest and newest minor version of vLLM 0.x whose events were looked at.
const OLDEST: u32 = 10;
const NEWEST: u32 = 33;

/// What versions below this one lack.
const ODDITIES: [(u32, &str); 7] = [
    (
        12,
        "`publisher` must be set to \"zmq\" in --kv-events-config",
    ),
    (16, "no /render: prompts are compared by /tokenize"),
    (
        17,
        "events tell no salts: set `untold_salts` if clients send cache_salt",
    ),
    (
        19,
        "events tell no places of images: prompts match up to the first one",
    ),
    (26, "no full reports (`full_reports`)"),
    (
        29,
        "hashes begin at random unless PYTHONHASHSEED is set: they cannot be checked",
    ),
    (33, "a long replay to a slow reader may break off"),
];

/// `MAJOR.MINOR`, if it is such.
pub(crate) fn parts(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|c: char| !c.is_ascii_digit());
    let minor = minor.get(..digits.unwrap_or(minor.len()))?;
    Some((major, minor.parse().ok()?))
}

pub(super) fn judge(name: &str, version: Option<&str>) -> Item {
    const ID: &str = "engine.version";
    let Some(version) = version else {
        return Item::skipped(
            ID,
            name,
            "the engine tells no vLLM version at /version (SGLang?)",
        );
    };
    let (fix_old, fix_new) = (
        "take vLLM 0.10 or later: before, there are no KV events",
        "newer than what was tested: watch engine.events, engine.template and the control plane's prediction_mismatch",
    );
    match parts(version) {
        Some((0, minor)) if minor < OLDEST => {
            Item::fail(ID, name, format!("vLLM {version}"), fix_old)
        }
        Some((0, minor)) if minor <= NEWEST => {
            let odd = ODDITIES.iter().filter(|(since, _)| minor < *since);
            let odd: Vec<&str> = odd.map(|(_, what)| *what).collect();
            let told = if odd.is_empty() {
                format!("vLLM {version}")
            } else {
                format!("vLLM {version}: {}", odd.join("; "))
            };
            Item::ok(ID, name, told)
        }
        Some(_) => Item::warn(ID, name, format!("vLLM {version}"), fix_new),
        None => Item::skipped(
            ID,
            name,
            format!("{version:?} is no version known here (a build of your own?)"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::item::Status;

    #[test]
    fn versions() {
        for (version, status, part) in [
            ("0.9.2", Status::Fail, "0.9.2"),
            ("0.11.0", Status::Ok, "publisher"),
            ("v0.28.1rc1.dev3+g12", Status::Ok, "PYTHONHASHSEED"),
            ("0.33.0", Status::Ok, "vLLM 0.33.0"),
            ("0.34", Status::Warn, "0.34"),
            ("1.0.0", Status::Warn, "1.0"),
            ("dev", Status::Skipped, "dev"),
        ] {
            let item = judge("x", Some(version));
            assert_eq!(item.status, status, "{version}");
            assert!(item.found.contains(part), "{item:?}");
        }
        assert_eq!(judge("x", None).status, Status::Skipped);
        assert_eq!(judge("x", Some("0.33.0")).found, "vLLM 0.33.0");
    }
}
