use super::*;
use crate::engine::tests::config;

#[test]
fn a_fleet_secret_is_made_once_and_kept() {
    let dir = std::env::temp_dir().join(format!("prefix-picker-secret-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let mut config = config(&dir);
    config.fleet_secret = FleetSecret::Generated;
    let first = fleet_secret(&config).unwrap();
    assert_eq!(first.len(), 64);
    assert_eq!(fleet_secret(&config).unwrap(), first);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(dir.join("fleet-secret"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let file = dir.join("other");
    std::fs::write(&file, "  sixteen-bytes-at-least\n").unwrap();
    config.fleet_secret = FleetSecret::File(file.clone());
    assert_eq!(fleet_secret(&config).unwrap(), b"sixteen-bytes-at-least");
    std::fs::write(&file, "short").unwrap();
    assert!(fleet_secret(&config).is_err());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_shipped_configuration_is_valid() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy/prefix-picker.yaml");
    let config = Config::load(&path).unwrap();
    assert_eq!(config.replicas().count(), 3);
    let envoy = std::fs::read_to_string(path.with_file_name("envoy.yaml")).unwrap();
    for token in &config.tokens {
        assert!(
            envoy.contains(token.as_str()),
            "envoy.yaml has another token"
        );
    }
    for (_, replica) in config.replicas() {
        assert!(
            envoy.contains(&format!("port_value: {}", replica.endpoint.port())),
            "{}",
            replica.name
        );
    }
}
