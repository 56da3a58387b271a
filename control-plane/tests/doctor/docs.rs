//! docs/doctor.md against the code.

use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// `group.name`, both of small letters.
fn is_id(text: &str) -> bool {
    let groups = [
        "engine",
        "pool",
        "control_plane",
        "traffic",
        "gateway",
        "dashboards",
    ];
    text.split_once('.').is_some_and(|(group, name)| {
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        groups.contains(&group) && !name.is_empty() && name.chars().all(plain)
    })
}

/// String literals of a folder's code that are ids.
fn ids_of(dir: &Path, ids: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            ids_of(&path, ids);
            continue;
        }
        let code = std::fs::read_to_string(&path).unwrap();
        // Every second part is within quotes, where a line has no quote within a text.
        let literals = code
            .lines()
            .flat_map(|line| line.split('"').skip(1).step_by(2));
        ids.extend(literals.filter(|text| is_id(text)).map(str::to_owned));
    }
}

#[test]
fn all_ids_are_there_with_fault_and_cure() {
    let mut ids = BTreeSet::new();
    ids_of(&Path::new(ROOT).join("src/doctor"), &mut ids);
    assert!(ids.len() > 45, "{ids:?}");
    assert_eq!(ids, listed());
}

/// All ids that docs/doctor.md lists.
pub(crate) fn listed() -> BTreeSet<String> {
    let docs = std::fs::read_to_string(Path::new(ROOT).join("../docs/doctor.md")).unwrap();
    let mut listed = BTreeSet::new();
    for row in docs.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let id = cells[0].trim_matches('`');
        if !is_id(id) {
            continue;
        }
        assert_eq!(cells.len(), 4, "{row}");
        assert!(cells.iter().all(|cell| cell.len() > 3), "{row}");
        assert!(listed.insert(id.to_owned()), "{id} twice");
    }
    listed
}
