//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{Result, Write as _};
use std::path::{Path, PathBuf};

/// Writes a file beside `path` (`.new` at the end of its name) and puts it in place of that: a crash
/// leaves the old one or the new one. The new name itself is on the disk after [`sync_folder`].
///
/// # Errors
/// Those of the system; the old file is whole then.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(beside, path)
}

/// What a file of `bytes_max` bytes at most holds; nothing where it is longer, not there or not readable.
pub(crate) fn read_up_to(path: &Path, bytes_max: u64) -> Vec<u8> {
    let fits = fs::metadata(path).is_ok_and(|file| file.len() <= bytes_max);
    if fits {
        fs::read(path).unwrap_or_default()
    } else {
        Vec::new()
    }
}

/// What was renamed in a folder stays so.
///
/// # Errors
/// Those of the system.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_or_left() {
        let dir = std::env::temp_dir().join(format!("prefix-picker-disk-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a.b.json");
        assert!(read_up_to(&path, 9).is_empty(), "not there");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            sync_folder(&dir).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(read_up_to(&path, 3), b"two");
        assert!(read_up_to(&path, 2).is_empty(), "too long");
        assert_eq!(
            fs::read_dir(&dir).unwrap().count(),
            1,
            "nothing is left beside it"
        );
        fs::create_dir(dir.join("a.b.json.new")).unwrap();
        replace(&path, b"three").unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        fs::remove_dir_all(&dir).unwrap();
    }
}
