//! `pools[].discovery`: where a pool's replicas are listed, other than in the configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::Value;

use super::fields::{Errors, Fields};
use super::{names, selector};

pub(super) const FIELDS: &[&str] = &[
    "dns",
    "kubernetes",
    "events_port",
    "replay_port",
    "topic",
    "data_parallel_size",
    "metrics_port",
    "metrics_path",
    "health_path",
];
pub(super) const DNS: &[&str] = &["name", "type", "port", "interval_ms", "server"];
pub(super) const KUBERNETES: &[&str] = &[
    "namespace",
    "label_selector",
    "inference_pool",
    "port",
    "kubeconfig",
    "api_server",
    "token_file",
    "ca_file",
];

const DAY_MS: u64 = 24 * 3600 * 1000;
/// The port that engines serve on unless told otherwise.
const SERVE_PORT: u16 = 8000;
/// As in vLLM's examples of `--kv-events-config`.
const EVENTS_PORT: u16 = 5557;
const REPLAY_PORT: u16 = 5558;
/// Most ranks behind one endpoint.
const RANKS_MAX: u64 = 1024;

/// `discovery`: replicas that come and go, besides those of `replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// `dns` or `kubernetes`: who lists them. Required, exactly one of the two.
    pub source: SourceConfig,
    /// `events_port`: where engines publish KV events; rank n does at this port plus n. Default 5557. An
    /// engine that says otherwise itself (`/kv_event_sources`, vLLM 0.31 and newer) is believed.
    pub events_port: u16,
    /// `replay_port`: their replay endpoint, likewise; `none`: they have none, and a lost event or
    /// connection costs all that is known of the replica. Default 5558.
    pub replay_port: Option<u16>,
    /// `topic`: prefix of the topics to take. Default empty: all.
    pub topic: String,
    /// `data_parallel_size`: ranks behind each endpoint (vLLM's `--data-parallel-size`), each a replica of
    /// its own. Default 1.
    pub data_parallel_size: u16,
    /// `metrics_port`: where engines tell metrics, if not where they serve. Default: where they serve.
    pub metrics_port: Option<u16>,
    /// `metrics_path`: the path of their metrics. Default `/metrics`.
    pub metrics_path: String,
    /// `health_path`: the path of their health check. Default `/health`.
    pub health_path: String,
}

/// Who lists replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceConfig {
    /// A name in the DNS.
    Dns(DnsConfig),
    /// Kubernetes.
    Kubernetes(KubernetesConfig),
}

/// `discovery.dns`: every address of a name is an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsConfig {
    /// `name`: the name, for example that of a headless service, `vllm.models.svc`. Required.
    pub name: String,
    /// `type`, `port`: `a`: the addresses (A and AAAA) of the name, all with this port; `srv`: the name's
    /// SRV records, which tell ports themselves. Default `a`, and 8000.
    pub records: Records,
    /// `interval_ms`: time between look-ups. Default 5,000.
    pub interval_ms: u64,
    /// `server`: a DNS server's `ip:port`. Default: the system's (`/etc/resolv.conf`).
    pub server: Option<SocketAddr>,
}

/// Which records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Addresses, all with this port.
    Addresses(u16),
    /// SRV.
    Srv,
}

/// `discovery.kubernetes`: every pod that matches is an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// `namespace`: the pods' namespace. Default: the control plane's own, or the kubeconfig's.
    pub namespace: Option<String>,
    /// `label_selector` or `inference_pool`: pods with these labels, as kubectl has it
    /// (`app=vllm,tier!=test`), or those that the `InferencePool` of this name selects. Required, exactly
    /// one of the two.
    pub pods: Pods,
    /// `port`: where pods serve: a number, or the name of a container's port. Default: the
    /// `InferencePool`'s `targetPorts`, or 8000.
    pub port: Option<PodPort>,
    /// `kubeconfig`: a kubeconfig file, whose current context is used. Default: `$KUBECONFIG` or
    /// `~/.kube/config` where there is one, else the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// `api_server`: the API server's URL, in place of all that. Default none.
    pub api_server: Option<String>,
    /// `token_file`: with `api_server`: a file with a bearer token, read again as it changes.
    pub token_file: Option<PathBuf>,
    /// `ca_file`: with `api_server`: certificates (PEM) that the server's must be signed by.
    pub ca_file: Option<PathBuf>,
}

/// Which pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Those with these labels.
    Labels(String),
    /// Those that the `InferencePool` of this name selects.
    InferencePool(String),
}

/// A pod's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodPort {
    /// By number.
    Number(u16),
    /// By the name that a container gives it.
    Name(String),
}

impl DiscoveryConfig {
    /// Says whose list it is; another one's must not be taken for it.
    #[must_use]
    pub fn origin(&self) -> String {
        match &self.source {
            SourceConfig::Dns(dns) => {
                let kind = match dns.records {
                    Records::Addresses(_) => "a",
                    Records::Srv => "srv",
                };
                format!("dns:{kind}:{}", dns.name)
            }
            SourceConfig::Kubernetes(of) => {
                let namespace = of.namespace.as_deref().unwrap_or_default();
                let server = of.api_server.as_deref().unwrap_or_default();
                match &of.pods {
                    Pods::Labels(labels) => format!("pods:{server}:{namespace}:{labels}"),
                    Pods::InferencePool(pool) => format!("pool:{server}:{namespace}:{pool}"),
                }
            }
        }
    }

    /// The same for people.
    #[must_use]
    pub fn described(&self) -> String {
        let of = match &self.source {
            SourceConfig::Dns(dns) => {
                let records = match dns.records {
                    Records::Addresses(_) => "addresses",
                    Records::Srv => "SRV records",
                };
                return format!("{records} of {} in the DNS", dns.name);
            }
            SourceConfig::Kubernetes(of) => of,
        };
        let pods = match &of.pods {
            Pods::Labels(labels) => format!("pods with {labels}"),
            Pods::InferencePool(pool) => format!("InferencePool {pool}"),
        };
        let namespace = match &of.namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "the namespace of the kubeconfig or the service account".to_owned(),
        };
        let server = of.api_server.as_ref();
        let server = server.map_or(String::new(), |url| format!(" at {url}"));
        format!("{pods} in {namespace}{server}")
    }
}

/// Reads `discovery`; `None` where it is absent or unusable.
pub(super) fn read(pool: &Fields<'_>, errors: &mut Errors) -> Option<DiscoveryConfig> {
    let value = pool.raw("discovery")?;
    let f = Fields::open(value, &pool.at("discovery"), FIELDS, errors)?;
    let source = source(&f, errors);
    let events_port = port(&f, "events_port", EVENTS_PORT, errors);
    let replay_port = match f.raw("replay_port").map(|value| value.as_str()) {
        Some(Some("none")) => None,
        _ => Some(port(&f, "replay_port", REPLAY_PORT, errors)),
    };
    let data_parallel_size = f.number("data_parallel_size", 1, 1..=RANKS_MAX, errors);
    let topic = match f.raw("topic") {
        Some(value) if value.as_str() != Some("") => {
            f.text("topic", "a string", errors).unwrap_or_default()
        }
        _ => "",
    };
    let metrics_port = f.raw("metrics_port");
    let metrics_port = metrics_port.map(|_| port(&f, "metrics_port", SERVE_PORT, errors));
    let metrics_path = path(&f, "metrics_path", "/metrics", errors);
    let health_path = path(&f, "health_path", "/health", errors);
    // Last, so that all is told that is wrong.
    let config = DiscoveryConfig {
        source: source?,
        events_port,
        replay_port,
        topic: topic.to_owned(),
        data_parallel_size: u16::try_from(data_parallel_size).unwrap_or(1),
        metrics_port,
        metrics_path,
        health_path,
    };
    check_ranks(&f, &config, errors);
    Some(config)
}

/// Ranks of one engine count their ports up from the base.
fn check_ranks(f: &Fields<'_>, config: &DiscoveryConfig, errors: &mut Errors) {
    let size = config.data_parallel_size;
    let bases = [
        Some(("events_port", config.events_port)),
        config.replay_port.map(|p| ("replay_port", p)),
    ];
    for (name, base) in bases.into_iter().flatten() {
        if base.checked_add(size - 1).is_none() {
            errors.add(
                &f.at(name),
                format!("{base}: with {size} ranks ports go beyond 65535"),
            );
        }
    }
    if let Some(replay) = config.replay_port
        && replay.abs_diff(config.events_port) < size
    {
        errors.add(
            &f.at("replay_port"),
            format!(
                "{replay}: rank n publishes at {} plus n and replays at {replay} plus n, which are the same ports for \
                 some of {size} rank(s): expected another port, at least {size} away, or none",
                config.events_port
            ),
        );
    }
}

fn source(f: &Fields<'_>, errors: &mut Errors) -> Option<SourceConfig> {
    let dns = f.raw("dns").map(|value| dns(value, &f.at("dns"), errors));
    let kubernetes = f
        .raw("kubernetes")
        .map(|value| kubernetes(value, &f.at("kubernetes"), errors));
    match (dns, kubernetes) {
        (Some(dns), None) => dns.map(SourceConfig::Dns),
        (None, Some(kubernetes)) => kubernetes.map(SourceConfig::Kubernetes),
        (Some(_), Some(_)) => {
            errors.add(
                &f.at("kubernetes"),
                "both this and dns: expected one of them",
            );
            None
        }
        (None, None) => {
            errors.add(&f.at("dns"), "missing: expected dns or kubernetes");
            None
        }
    }
}

fn dns(value: &Value, at: &str, errors: &mut Errors) -> Option<DnsConfig> {
    let f = Fields::open(value, at, DNS, errors)?;
    let expected = "a name like vllm.models.svc";
    f.required("name", expected, errors);
    let name = f.checked("name", expected, errors, names::dns_name);
    let kinds = [("a", false), ("srv", true)];
    let records = if f.choice("type", false, &kinds, errors) {
        if f.raw("port").is_some() {
            errors.add(
                &f.at("port"),
                "with type srv, whose records tell ports: expected none",
            );
        }
        Records::Srv
    } else {
        Records::Addresses(port(&f, "port", SERVE_PORT, errors))
    };
    let expected = "a DNS server's ip:port, like 10.96.0.10:53";
    let interval_ms = f.number("interval_ms", 5_000, 100..=DAY_MS, errors);
    let server = f.parsed("server", expected, errors, |text| text.parse().ok());
    // Last, so that all is told that is wrong.
    Some(DnsConfig {
        name: name?.to_owned(),
        records,
        interval_ms,
        server,
    })
}

fn kubernetes(value: &Value, at: &str, errors: &mut Errors) -> Option<KubernetesConfig> {
    let f = Fields::open(value, at, KUBERNETES, errors)?;
    let labels = f.checked(
        "label_selector",
        "a selector like app=vllm",
        errors,
        selector::check,
    );
    let pool = f.checked(
        "inference_pool",
        "an InferencePool's name",
        errors,
        names::object_name,
    );
    let given = ["label_selector", "inference_pool"].map(|name| f.raw(name).is_some());
    let pods = match given {
        [true, false] => labels.map(|labels| Pods::Labels(labels.to_owned())),
        [false, true] => pool.map(|pool| Pods::InferencePool(pool.to_owned())),
        [true, true] => {
            let message = "both this and label_selector: expected one of them";
            errors.add(&f.at("inference_pool"), message);
            None
        }
        [false, false] => {
            let message = "missing: expected label_selector or inference_pool";
            errors.add(&f.at("label_selector"), message);
            None
        }
    };
    let file = |name: &str, errors: &mut Errors| f.text(name, "a file", errors).map(PathBuf::from);
    let kubeconfig = file("kubeconfig", errors);
    let (token_file, ca_file) = (file("token_file", errors), file("ca_file", errors));
    let api_server = f.parsed(
        "api_server",
        "a URL like https://10.0.0.1:6443",
        errors,
        |text| {
            let url = reqwest::Url::parse(text).ok()?;
            (matches!(url.scheme(), "http" | "https") && url.has_host()).then(|| text.to_owned())
        },
    );
    if kubeconfig.is_some() && f.raw("api_server").is_some() {
        errors.add(
            &f.at("api_server"),
            "both this and kubeconfig: expected one of them",
        );
    }
    for (name, file) in [("token_file", &token_file), ("ca_file", &ca_file)] {
        if file.is_some() && f.raw("api_server").is_none() {
            errors.add(&f.at(name), "without api_server: expected both or neither");
        }
    }
    let namespace = f.checked("namespace", "a namespace", errors, names::namespace);
    let port = pod_port(&f, errors);
    Some(KubernetesConfig {
        namespace: namespace.map(str::to_owned),
        pods: pods?,
        port,
        kubeconfig,
        api_server,
        token_file,
        ca_file,
    })
}

fn pod_port(f: &Fields<'_>, errors: &mut Errors) -> Option<PodPort> {
    let value = f.raw("port")?;
    match value.as_str().filter(|name| !name.is_empty()) {
        Some(_) => f
            .checked("port", "a port", errors, names::port_name)
            .map(|name| PodPort::Name(name.to_owned())),
        None => Some(PodPort::Number(port(f, "port", SERVE_PORT, errors))),
    }
}

fn port(f: &Fields<'_>, name: &str, default: u16, errors: &mut Errors) -> u16 {
    let number = f.number(name, default.into(), 1..=u64::from(u16::MAX), errors);
    u16::try_from(number).unwrap_or(default)
}

fn path(f: &Fields<'_>, name: &str, default: &str, errors: &mut Errors) -> String {
    f.checked(name, "a path like /metrics", errors, names::url_path)
        .unwrap_or(default)
        .to_owned()
}
