//! What an `InferencePool` selects. Pure.
//!
//! `inference.networking.k8s.io/v1` has `selector.matchLabels` and `targetPorts`; its forerunner
//! `inference.networking.x-k8s.io/v1alpha2` a flat `selector` and `targetPortNumber`.

use std::collections::BTreeMap;

use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize;

use super::object::null;

/// Groups and versions of `InferencePool`, the best first.
pub const VERSIONS: [(&str, &str); 2] = [
    ("inference.networking.k8s.io", "v1"),
    ("inference.networking.x-k8s.io", "v1alpha2"),
];

/// An `InferencePool` as the API server tells it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PoolObject {
    /// What it asks for.
    #[serde(deserialize_with = "null")]
    pub spec: Spec,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    selector: serde_json::Value,
    #[serde(deserialize_with = "null")]
    target_ports: Vec<Port>,
    target_port_number: Option<u16>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Port {
    #[serde(deserialize_with = "null")]
    number: u16,
}

/// What is of use of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Labels, as in a query.
    pub labels: String,
    /// Each is an engine of its own.
    pub ports: Vec<u16>,
}

/// How one of [`VERSIONS`] is asked for.
#[must_use]
pub fn resource((group, version): (&str, &str)) -> ApiResource {
    let kind = GroupVersionKind::gvk(group, version, "InferencePool");
    ApiResource::from_gvk_with_plural(&kind, "inferencepools")
}

impl Selection {
    /// What a pool selects.
    ///
    /// # Errors
    /// If it selects by nothing, which would be every pod there is.
    pub fn of(spec: &Spec) -> Result<Self, String> {
        let labels = spec.selector.get("matchLabels").unwrap_or(&spec.selector);
        let labels: BTreeMap<String, String> = match labels.as_object() {
            Some(_) => serde_json::from_value(labels.clone())
                .map_err(|error| format!("its selector cannot be read: {error}"))?,
            None => BTreeMap::new(),
        };
        if labels.is_empty() {
            return Err("its selector names no labels".to_owned());
        }
        let pairs: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let ports = spec.target_ports.iter().map(|port| port.number);
        let ports: Vec<u16> = ports
            .chain(spec.target_port_number)
            .filter(|port| *port != 0)
            .collect();
        Ok(Self {
            labels: pairs.join(","),
            ports,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_versions_are_read() {
        let of = |spec: serde_json::Value| {
            let pool = json!({"apiVersion": "x/v1", "kind": "InferencePool", "metadata": {"name": "p"}, "spec": spec});
            let pool: PoolObject = serde_json::from_value(pool).unwrap();
            Selection::of(&pool.spec)
        };
        let v1 = json!({"selector": {"matchLabels": {"app": "vllm", "a": "b"}}, "targetPorts": [{"number": 8000}, {"number": 8001}],
            "endpointPickerRef": {"name": "epp"}});
        let expected = |ports: &[u16]| Selection {
            labels: "a=b,app=vllm".into(),
            ports: ports.to_vec(),
        };
        assert_eq!(of(v1), Ok(expected(&[8000, 8001])));
        let v1alpha2 = json!({"selector": {"app": "vllm", "a": "b"}, "targetPortNumber": 9000, "extensionRef": {"name": "epp"}});
        assert_eq!(of(v1alpha2), Ok(expected(&[9000])));
        for nothing in [
            json!({}),
            json!({"selector": {}}),
            json!({"selector": {"matchLabels": {}}}),
            json!({"selector": {"a": 1}}),
        ] {
            assert!(of(nothing).is_err());
        }
        let resource = resource(VERSIONS[0]);
        assert_eq!(resource.api_version, "inference.networking.k8s.io/v1");
    }
}
