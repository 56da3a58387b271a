//! What tests of the program share.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder that is gone when dropped.
pub(crate) struct Temp(pub(crate) PathBuf);

impl Temp {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("prefix-picker-program-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program under test.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_prefix-picker"))
}

/// The folder of the model that the project ships.
pub(crate) fn model() -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/engine-sim/model");
    dir.to_str().unwrap().to_owned()
}
