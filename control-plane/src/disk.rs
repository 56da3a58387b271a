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

/// Can files be kept in a folder, which is there or can be made? Tries it, and leaves nothing behind.
///
/// # Errors
/// What is wrong, for people, and what to do.
pub(crate) fn can_keep_files_in(folder: &Path) -> std::result::Result<(), String> {
    let shown = folder.display();
    // Of a relative path the last one is empty, and means here.
    let mut above = folder
        .ancestors()
        .map(|path| match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        });
    let Some(there) = above.find(|path| fs::symlink_metadata(path).is_ok()) else {
        return Err(format!(
            "{shown}: no folder above it is there: expected a folder, or where one can be made"
        ));
    };
    match fs::metadata(there) {
        Ok(about) if about.is_dir() => {}
        Ok(_) => {
            let what = format!("{shown}: {} is no folder", there.display());
            return Err(format!(
                "{what}: expected a folder, or where one can be made"
            ));
        }
        Err(error) => {
            return Err(format!(
                "{shown}: {} cannot be read: {error}",
                there.display()
            ));
        }
    }
    let probe = there.join(format!(".prefix-picker-check-{}", std::process::id()));
    let tried = if there == folder {
        File::create(&probe).and_then(|_| fs::remove_file(&probe))
    } else {
        fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe))
    };
    tried.map_err(|error| {
        let what = if there == folder {
            "nothing can be written there".to_owned()
        } else {
            format!("it cannot be made in {}", there.display())
        };
        format!("{shown}: {what}: {error}: expected a folder of this user's, on a volume that is not read-only")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_files_can_be_kept() {
        let dir = std::env::temp_dir().join(format!("prefix-picker-keep-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("file"), "").unwrap();
        let said = |path: &Path| can_keep_files_in(path).unwrap_err();
        assert_eq!(can_keep_files_in(&dir), Ok(()));
        assert_eq!(can_keep_files_in(&dir.join("a/b")), Ok(()));
        assert_eq!(can_keep_files_in(Path::new("no-such-folder-here")), Ok(()));
        for path in ["file", "file/state"] {
            let said = said(&dir.join(path));
            assert!(
                said.contains("/file is no folder: expected a folder"),
                "{said}"
            );
        }
        // Not even root can make one here.
        let inside = said(Path::new("/proc/no-such-folder/state"));
        assert!(inside.contains("it cannot be made in /proc: "), "{inside}");
        let there = said(Path::new("/proc"));
        assert!(
            there.contains("/proc: nothing can be written there: "),
            "{there}"
        );
        std::os::unix::fs::symlink(dir.join("nowhere"), dir.join("link")).unwrap();
        let link = said(&dir.join("link"));
        assert!(link.contains("/link cannot be read: "), "{link}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "nothing is left");
        fs::remove_dir_all(&dir).unwrap();
    }

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
