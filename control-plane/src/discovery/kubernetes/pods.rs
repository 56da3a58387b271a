//! Pods -> replicas. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;

use super::object::{Meta, null};
use crate::config::{DiscoveryConfig, PodPort};
use crate::discovery::found::{Found, Place, replicas};
use crate::engine::Standing;

/// A pod as the API server tells it; what is not needed is not read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodObject {
    #[serde(deserialize_with = "null")]
    metadata: Meta,
    #[serde(deserialize_with = "null")]
    spec: Spec,
    #[serde(deserialize_with = "null")]
    status: Status,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    #[serde(deserialize_with = "null")]
    containers: Vec<Container>,
    /// Sidecars are among these.
    #[serde(deserialize_with = "null")]
    init_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    #[serde(deserialize_with = "null")]
    ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerPort {
    name: Option<String>,
    #[serde(deserialize_with = "null")]
    container_port: u16,
}

/// `status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(deserialize_with = "null")]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(deserialize_with = "null")]
    r#type: String,
    #[serde(deserialize_with = "null")]
    status: String,
}

/// What is kept of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    name: String,
    uid: String,
    ip: Option<IpAddr>,
    ready: bool,
    deleting: bool,
    /// `Succeeded` or `Failed`: it never runs again.
    over: bool,
    ports: BTreeMap<String, u16>,
}

impl Pod {
    /// What is kept of it; `None`: it has no name.
    #[must_use]
    pub fn of(object: PodObject) -> Option<Self> {
        let (meta, status) = (object.metadata, object.status);
        let containers = object.spec.containers.into_iter();
        let ports = containers
            .chain(object.spec.init_containers)
            .flat_map(|container| container.ports)
            .filter_map(|port| Some((port.name?, port.container_port)));
        let is_ready = |c: &Condition| c.r#type == "Ready" && c.status == "True";
        Some(Self {
            name: meta.name?,
            uid: meta.uid.unwrap_or_default(),
            ip: status.pod_ip.and_then(|ip| ip.parse().ok()),
            ready: status.conditions.iter().any(is_ready),
            deleting: meta.deletion_timestamp.is_some(),
            over: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            ports: ports.collect(),
        })
    }

    /// Its name, which is that of no other pod of the namespace at any one time.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn standing(&self) -> Standing {
        match (self.deleting, self.ready) {
            (true, _) => Standing::Leaving,
            (_, true) => Standing::Serving,
            (_, false) => Standing::NotReady,
        }
    }
}

/// Where pods serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Each is an engine of its own.
    pub ports: Vec<PodPort>,
    /// Put before names, where pools' pods are of several namespaces.
    pub prefix: String,
}

/// The replicas that these pods are, and the names of those that lack the port.
#[must_use]
pub fn found<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    ports: &Ports,
    config: &DiscoveryConfig,
) -> (Vec<Found>, Vec<String>) {
    let (mut all, mut without) = (Vec::new(), Vec::new());
    for pod in pods.filter(|pod| !pod.over) {
        let Some(ip) = pod.ip else { continue };
        for (nth, wanted) in (0u16..).zip(&ports.ports) {
            let port = match wanted {
                PodPort::Number(port) => Some(*port),
                PodPort::Name(name) => pod.ports.get(name).copied(),
            };
            let Some(port) = port.filter(|port| *port != 0) else {
                without.push(pod.name.clone());
                continue;
            };
            let (prefix, name) = (&ports.prefix, &pod.name);
            let name = match ports.ports.len() {
                1 => format!("{prefix}{name}"),
                _ => format!("{prefix}{name}:{port}"),
            };
            let place = Place {
                key: format!("{name}|{}|{ip}", pod.uid),
                name,
                ip,
                port,
                nth,
                standing: pod.standing(),
            };
            all.extend(replicas(&place, config));
        }
    }
    (all, without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KubernetesConfig, Pods, SourceConfig};
    use serde_json::{Value, json};

    fn config() -> DiscoveryConfig {
        DiscoveryConfig {
            source: SourceConfig::Kubernetes(KubernetesConfig {
                namespace: None,
                pods: Pods::Labels("app=vllm".into()),
                port: None,
                kubeconfig: None,
                api_server: None,
                token_file: None,
                ca_file: None,
            }),
            events_port: 5557,
            replay_port: None,
            topic: String::new(),
            data_parallel_size: 1,
            metrics_port: None,
            metrics_path: "/metrics".into(),
            health_path: "/health".into(),
        }
    }

    fn pod(change: impl FnOnce(&mut Value)) -> Pod {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "vllm-0", "namespace": "ml", "uid": "u1", "labels": {"app": "vllm"}},
            "spec": {"containers": [{"name": "vllm", "image": "i", "ports": [{"name": "http", "containerPort": 8100, "protocol": "TCP"}]}],
                "initContainers": [{"name": "sidecar", "ports": [{"name": "admin", "containerPort": 9}]}]},
            "status": {"phase": "Running", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
                "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]},
        });
        change(&mut pod);
        Pod::of(serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn told(pod: &Pod, ports: &[PodPort], prefix: &str) -> Vec<(String, String, Standing)> {
        let ports = Ports {
            ports: ports.to_vec(),
            prefix: prefix.into(),
        };
        let (found, _) = found([pod].into_iter(), &ports, &config());
        found
            .into_iter()
            .map(|f| (f.key, f.replica.endpoint.to_string(), f.standing))
            .collect()
    }

    #[test]
    fn a_pod_is_what_its_status_says() {
        use Standing::{Leaving, NotReady, Serving};
        let port = [PodPort::Number(8000)];
        let standing = |change: &dyn Fn(&mut Value)| {
            let told = told(&pod(change), &port, "");
            told.first().map(|(.., standing)| *standing)
        };
        assert_eq!(standing(&|_| ()), Some(Serving));
        let cases: [(&str, Value, Option<Standing>); 8] = [
            (
                "/status/conditions/1/status",
                json!("False"),
                Some(NotReady),
            ),
            (
                "/status/conditions/1/status",
                json!("Unknown"),
                Some(NotReady),
            ),
            ("/status/conditions", json!([]), Some(NotReady)),
            ("/status/phase", json!("Succeeded"), None),
            ("/status/phase", json!("Failed"), None),
            ("/status/podIP", Value::Null, None),
            ("/status/podIP", json!(""), None),
            (
                "/metadata/deletionTimestamp",
                json!("2026-01-01T00:00:00Z"),
                Some(Leaving),
            ),
        ];
        for (at, value, expected) in cases {
            let changed = standing(&|pod| {
                let (parent, last) = at.rsplit_once('/').unwrap();
                pod.pointer_mut(parent).unwrap()[last] = value.clone();
                if let Some(items) = pod.pointer_mut(at) {
                    *items = value.clone();
                }
            });
            assert_eq!(changed, expected, "{at} {value}");
        }
        // One that is not scheduled yet.
        assert_eq!(
            standing(&|pod| pod["status"] = json!({"phase": "Pending"})),
            None
        );
    }

    #[test]
    fn uid_and_address_tell_pods_apart() {
        let port = [PodPort::Number(8000)];
        let key = |change: &dyn Fn(&mut Value)| told(&pod(change), &port, "").remove(0).0;
        let keys = [
            key(&|_| ()),
            key(&|pod| pod["metadata"]["uid"] = json!("u2")),
            key(&|pod| pod["status"]["podIP"] = json!("10.1.2.4")),
        ];
        assert_eq!(keys[0], "vllm-0|u1|10.1.2.3");
        assert!(keys[0] != keys[1] && keys[1] != keys[2] && keys[0] != keys[2]);
        let v6 = pod(|pod| pod["status"]["podIP"] = json!("fd00::1"));
        assert_eq!(told(&v6, &port, "")[0].1, "[fd00::1]:8000");
    }

    #[test]
    fn ports_by_name_and_several_of_them() {
        let named = |name: &str| [PodPort::Name(name.into())];
        assert_eq!(
            told(&pod(|_| ()), &named("http"), "ml:")[0].1,
            "10.1.2.3:8100"
        );
        assert_eq!(
            told(&pod(|_| ()), &named("http"), "ml:")[0].0,
            "ml:vllm-0|u1|10.1.2.3"
        );
        assert_eq!(told(&pod(|_| ()), &named("admin"), "")[0].1, "10.1.2.3:9");
        let ports = Ports {
            ports: named("grpc").to_vec(),
            prefix: String::new(),
        };
        let none = found([&pod(|_| ())].into_iter(), &ports, &config());
        assert_eq!(none, (vec![], vec!["vllm-0".to_owned()]));
        // As an InferencePool with an engine for each data-parallel rank has it.
        let ports = Ports {
            ports: vec![PodPort::Number(8000), PodPort::Number(8001)],
            prefix: String::new(),
        };
        let (found, _) = found([&pod(|_| ())].into_iter(), &ports, &config());
        let told: Vec<_> = found
            .iter()
            .map(|f| (f.replica.name.as_str(), f.replica.events.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("vllm-0:8000", "tcp://10.1.2.3:5557"),
                ("vllm-0:8001", "tcp://10.1.2.3:5558")
            ]
        );
    }
}
