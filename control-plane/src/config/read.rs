//! From the parsed file to a [`Config`].

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use prefix_picker_core::sync::{DP_RANK_MAX, replica_name};
use serde_json::Value;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::discovery;
use super::fields::{Errors, Fields, as_text, each};
use super::flags;
use super::names::is_host;
use super::unique::check_unique;
use super::{
    Config, FieldError, FleetSecret, HubModel, LogFormat, PoolConfig, ReplicaConfig, TOKENS_MAX,
    TokenIds,
};

pub(super) const TOP: &[&str] = &[
    "listen",
    "tokens",
    "token_files",
    "admin_tokens",
    "admin_token_files",
    "fleet_secret",
    "fleet_secret_file",
    "data_dir",
    "snapshot_interval_ms",
    "scrape_interval_ms",
    "scrape_timeout_ms",
    "down_after_misses",
    "models_interval_ms",
    "publish_interval_ms",
    "startup_grace_ms",
    "page_bytes",
    "log_level",
    "log_format",
    "pools",
];
pub(super) const POOL: &[&str] = &[
    "name",
    "model_dir",
    "model",
    "revision",
    "models",
    "clusters",
    "token_ids",
    "full_reports",
    "untold_salts",
    "eagle_drops_block",
    "memory_budget_bytes",
    "adapters_on_demand",
    "api_key_file",
    "replicas",
    "discovery",
];
pub(super) const REPLICA: &[&str] = &[
    "name",
    "endpoint",
    "data_parallel_rank",
    "events",
    "replay",
    "topic",
    "metrics",
    "health",
    "api",
];

const DAY_MS: u64 = 24 * 3600 * 1000;
const ADDRESS: &str = "an address like 127.0.0.1:9400 or [::1]:9400";
const ENDPOINT: &str = "ip:port as Envoy's cluster has it, like 10.0.0.7:8000 or \"[fd00::7]:8000\" (for names there is discovery)";
const ZMQ: &str = "a ZMQ endpoint like tcp://10.0.0.7:5557 or tcp://[fd00::7]:5557";
const API: &str = "a URL like http://10.0.0.7:8000, without the /v1";

const LEVEL: &str =
    "error, warn, info, debug, trace, off, or a filter like info,prefix_picker::discovery=debug";

/// Reads the whole file: what can be read of it, and all errors. Fields that are wrong have their defaults.
pub(super) fn config(value: &Value) -> (Option<Config>, Vec<FieldError>) {
    let mut errors = Errors::default();
    let config = top(value, &mut errors);
    (config, errors.0)
}

fn top(value: &Value, errors: &mut Errors) -> Option<Config> {
    let f = Fields::open(value, "", TOP, errors)?;
    let listen = f
        .parsed("listen", ADDRESS, errors, |text| text.parse().ok())
        .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 9400)));
    let (tokens, token_files) = tokens(&f, ["tokens", "token_files"], errors);
    if tokens.is_empty() && token_files.is_empty() && !errors.is_about("tokens") {
        errors.add(
            "tokens",
            "missing: expected at least one token, here or in token_files",
        );
    }
    let (admin_tokens, admin_token_files) =
        self::tokens(&f, ["admin_tokens", "admin_token_files"], errors);
    if admin_tokens.iter().any(|token| tokens.contains(token)) {
        errors.add(
            "admin_tokens",
            "one of them is among tokens, too: every gateway could drain replicas",
        );
    }
    let data_dir = f
        .required_text("data_dir", "a folder", errors)
        .map(PathBuf::from);
    let pools: Vec<PoolConfig> = match f.required("pools", "at least one pool", errors) {
        Some(Value::Array(items)) if items.is_empty() => {
            errors.add("pools", "empty: expected at least one pool");
            Vec::new()
        }
        Some(_) => {
            let items = f.list("pools", "a list of pools", errors);
            each(&items, errors, pool)
        }
        None => Vec::new(),
    };
    check_unique(&pools, errors);
    let to_u32 = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    Some(Config {
        listen,
        tokens,
        token_files,
        admin_tokens,
        admin_token_files,
        fleet_secret: fleet_secret(&f, errors),
        data_dir: data_dir.unwrap_or_default(),
        snapshot_interval_ms: f.number("snapshot_interval_ms", 10_000, 0..=DAY_MS, errors),
        scrape_interval_ms: f.number("scrape_interval_ms", 200, 10..=60_000, errors),
        scrape_timeout_ms: f.number("scrape_timeout_ms", 1000, 10..=60_000, errors),
        down_after_misses: to_u32(f.number("down_after_misses", 3, 1..=1000, errors)),
        models_interval_ms: f.number("models_interval_ms", 2000, 100..=600_000, errors),
        publish_interval_ms: f.number("publish_interval_ms", 3, 0..=10_000, errors),
        startup_grace_ms: f.number("startup_grace_ms", 5000, 0..=600_000, errors),
        page_bytes: size(f.number("page_bytes", 4096, 1024..=65_536, errors)),
        log_level: f
            .parsed("log_level", LEVEL, errors, log_level)
            .unwrap_or_else(|| "info".to_owned()),
        log_format: f.choice(
            "log_format",
            LogFormat::Text,
            &[("text", LogFormat::Text), ("json", LogFormat::Json)],
            errors,
        ),
        pools,
    })
}

/// A word alone that is no level would be taken for a module, and all else be silent.
fn log_level(text: &str) -> Option<String> {
    let is_word = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let fine = if is_word {
        text.parse::<LevelFilter>().is_ok()
    } else {
        EnvFilter::try_new(text).is_ok()
    };
    fine.then(|| text.to_owned())
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Tokens are secrets: errors about them show no value.
fn tokens(
    f: &Fields<'_>,
    [inline, by_file]: [&str; 2],
    errors: &mut Errors,
) -> (Vec<String>, Vec<PathBuf>) {
    let mut tokens = Vec::new();
    for (path, item) in f.list(inline, "a list of tokens", errors) {
        match item.as_str().filter(|text| is_token(text)) {
            Some(token) => tokens.push(token.to_owned()),
            None => errors.add(
                &path,
                "expected a token: printable ASCII without spaces (quote it if it is a number)",
            ),
        }
    }
    let files: Vec<PathBuf> = f
        .texts_in_place(by_file, "a list of files", errors)
        .into_iter()
        .map(|file| PathBuf::from(file.unwrap_or_default()))
        .collect();
    if tokens.len() + files.len() > TOKENS_MAX {
        let message = format!("more than {TOKENS_MAX} {inline} and {by_file}");
        errors.add(inline, message);
    }
    (tokens, files)
}

/// Can it stand in an `authorization` header?
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn fleet_secret(f: &Fields<'_>, errors: &mut Errors) -> FleetSecret {
    let inline = f.raw("fleet_secret");
    let file = f.text("fleet_secret_file", "a file", errors);
    match (inline, file) {
        (Some(_), Some(_)) => {
            errors.add(
                "fleet_secret_file",
                "both this and fleet_secret: expected one of them",
            );
            FleetSecret::Generated
        }
        (Some(value), None) => match value.as_str().filter(|secret| secret.len() >= 16) {
            Some(secret) => FleetSecret::Inline(secret.to_owned()),
            None => {
                errors.add("fleet_secret", "expected a string of at least 16 bytes");
                FleetSecret::Generated
            }
        },
        (None, Some(path)) => FleetSecret::File(PathBuf::from(path)),
        (None, None) => FleetSecret::Generated,
    }
}

fn pool(value: &Value, path: &str, errors: &mut Errors) -> Option<PoolConfig> {
    let known = [POOL, flags::FIELDS].concat();
    let f = Fields::open(value, path, &known, errors)?;
    let name = f
        .required_text("name", "a name", errors)
        .filter(|name| check_name(name, &f.at("name"), errors));
    let hub = hub_model(&f, errors);
    let model_dir = match &hub {
        Some(_) => None,
        None => f.required_text("model_dir", "the model's folder", errors),
    };
    let models = some_texts(&f, "models", "at least one model name", errors);
    let clusters = some_texts(&f, "clusters", "at least one Envoy cluster", errors);
    let discovery = discovery::read(&f, errors);
    let static_only = f.raw("discovery").is_none();
    if static_only {
        f.required("replicas", "at least one replica, or discovery", errors);
    }
    let items = f.list("replicas", "a list of replicas", errors);
    if static_only && f.raw("replicas").is_some_and(Value::is_array) && items.is_empty() {
        errors.add(&f.at("replicas"), "empty: expected at least one replica");
    }
    let replicas = each(&items, errors, replica);
    let token_ids = [
        ("auto", TokenIds::Auto),
        ("on", TokenIds::On),
        ("off", TokenIds::Off),
    ];
    Some(PoolConfig {
        name: name.unwrap_or_default().to_owned(),
        model_dir: PathBuf::from(model_dir.unwrap_or_default()),
        hub,
        models,
        clusters,
        token_ids: f.choice("token_ids", TokenIds::Auto, &token_ids, errors),
        full_reports: f.flag("full_reports", false, errors),
        untold_salts: f.flag("untold_salts", false, errors),
        eagle_drops_block: f.flag("eagle_drops_block", false, errors),
        memory_budget_bytes: size(f.number(
            "memory_budget_bytes",
            1 << 30,
            1 << 20..=1 << 44,
            errors,
        )),
        engine: flags::read(&f, errors),
        adapters_on_demand: f.flag("adapters_on_demand", false, errors),
        api_key_file: f.text("api_key_file", "a file", errors).map(PathBuf::from),
        replicas,
        discovery,
    })
}

/// `model` and `revision`, in place of `model_dir`.
fn hub_model(f: &Fields<'_>, errors: &mut Errors) -> Option<HubModel> {
    let model = f.text("model", "a model's name like org/name", errors);
    let revision = f.text("revision", "a branch, tag or commit", errors);
    if model.is_some() && f.raw("model_dir").is_some() {
        errors.add(
            &f.at("model"),
            "both this and model_dir: expected one of them",
        );
    }
    if model.is_none() && revision.is_some() {
        errors.add(&f.at("revision"), "without model: expected both or neither");
    }
    model.map(|model| HubModel {
        model: model.to_owned(),
        revision: revision.map(str::to_owned),
    })
}

fn some_texts(f: &Fields<'_>, name: &str, expected: &str, errors: &mut Errors) -> Vec<String> {
    let value = f.required(name, expected, errors);
    if value.is_some_and(|value| value.as_array().is_some_and(Vec::is_empty)) {
        errors.add(&f.at(name), format!("empty: expected {expected}"));
    }
    f.texts(name, "a list of strings", errors)
}

/// Names become file names and metric labels.
fn check_name(name: &str, path: &str, errors: &mut Errors) -> bool {
    let fine = name.len() <= 128
        && !name.starts_with('.')
        && name.bytes().all(|byte| {
            byte.is_ascii_alphanumeric()
                || matches!(byte, b'-' | b'_' | b'.' | b':' | b'[' | b']' | b'#')
        });
    if !fine {
        errors.wrong(
            path,
            &Value::from(name),
            "at most 128 letters, digits, - _ . : [ ] #, not beginning with a dot",
        );
    }
    fine
}

fn replica(value: &Value, path: &str, errors: &mut Errors) -> Option<ReplicaConfig> {
    let f = Fields::open(value, path, REPLICA, errors)?;
    f.required("endpoint", ENDPOINT, errors);
    let endpoint: Option<SocketAddr> = f.parsed("endpoint", ENDPOINT, errors, |text| {
        text.parse().ok().filter(|a: &SocketAddr| a.port() != 0)
    });
    f.required("events", ZMQ, errors);
    let events = f.parsed("events", ZMQ, errors, zmq);
    let replay = f.parsed("replay", ZMQ, errors, zmq);
    let endpoint = endpoint.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
    let ranks = 0..=u64::from(DP_RANK_MAX);
    let rank = f.raw("data_parallel_rank");
    let rank = rank.map(|_| f.number("data_parallel_rank", 0, ranks, errors));
    let data_parallel_rank = rank.and_then(|rank| u16::try_from(rank).ok());
    let name = f
        .text("name", "a name", errors)
        .filter(|name| check_name(name, &f.at("name"), errors));
    let topic = match f.raw("topic") {
        Some(value) if value.as_str() != Some("") => {
            as_text(value, &f.at("topic"), "a string", errors).unwrap_or_default()
        }
        _ => "",
    };
    let url = |name: &str, errors: &mut Errors| {
        let expected = format!("a URL like http://10.0.0.7:8000/{name}");
        f.parsed(name, &expected, errors, http)
            .unwrap_or_else(|| format!("http://{endpoint}/{name}"))
    };
    // Whose paths are ours: clients are given the /v1.
    let is_base = |url: &String| !url.trim_end_matches('/').ends_with("/v1");
    let api = f
        .parsed("api", API, errors, |text| http(text).filter(is_base))
        .unwrap_or_else(|| format!("http://{endpoint}"));
    Some(ReplicaConfig {
        name: name.map_or_else(
            || replica_name(&endpoint.to_string(), data_parallel_rank).into_owned(),
            str::to_owned,
        ),
        endpoint,
        data_parallel_rank,
        events: events.unwrap_or_default(),
        replay,
        topic: topic.to_owned(),
        metrics: url("metrics", errors),
        health: url("health", errors),
        api: api.trim_end_matches('/').to_owned(),
    })
}

/// `tcp://host:port` or `ipc://path` to connect to.
fn zmq(text: &str) -> Option<String> {
    if let Some(address) = text.strip_prefix("tcp://") {
        let (host, port) = address.rsplit_once(':')?;
        let port = port.parse::<u16>().ok()?;
        return (port != 0 && is_host(host)).then(|| text.to_owned());
    }
    text.strip_prefix("ipc://")
        .filter(|path| !path.is_empty())
        .map(|_| text.to_owned())
}

fn http(text: &str) -> Option<String> {
    let url = reqwest::Url::parse(text).ok()?;
    (url.scheme() == "http" && url.has_host()).then(|| text.to_owned())
}
