//! Engines that prefill for each other.
//!
//! `GET /server_info?config_format=json` has all of vLLM's configuration, `vllm_config.kv_transfer_config`
//! null where nothing is transferred, else with `kv_connector`, `kv_role` and `kv_connector_extra_config`
//! (`vllm/entrypoints/serve/instrumentator/server_info.py`, `vllm/config/kv_transfer.py`). It is served with
//! `VLLM_SERVER_DEV_MODE=1` only, since 0.9 (pull request 16572); where `config_format` is not known, the
//! configuration is one text that does not tell of transfers. Metrics: `vllm:nixl_*` of the NIXL connector
//! (pull request 26811), `vllm:mooncake_*` (0.33) and `vllm:num_requests_kv_fetch_by_stage` of engines that
//! fetch (0.32); other connectors leave no trace there.

use serde_json::Value;

use crate::doctor::item::Item;
use crate::doctor::probe::Seen;
use crate::doctor::samples::samples;

const ID: &str = "engine.disaggregated";
const FIX: &str = "prefix-picker places whole requests: take engines that only prefill (kv_producer) or only decode \
    (kv_consumer) out of the pool, and list engines that do both (kv_both, or without a transfer)";
/// Most connectors of one that holds several.
const CONNECTORS_MAX: usize = 16;
/// Metrics of connectors that move blocks between engines.
const METRICS: [&str; 3] = [
    "vllm:nixl_",
    "vllm:mooncake_",
    "vllm:num_requests_kv_fetch_by_stage",
];

pub(super) fn judge(name: &str, seen: &Seen) -> Item {
    let info = seen.server_info.as_ref();
    let told = info.and_then(|info| info.get("vllm_config")?.get("kv_transfer_config"));
    match told {
        Some(Value::Null) => Item::ok(
            ID,
            name,
            "no KV transfer between engines (/server_info): requests are answered whole",
        ),
        Some(config) => of_config(name, config),
        None => of_metrics(name, seen),
    }
}

fn of_config(name: &str, config: &Value) -> Item {
    let roles = roles(config);
    let apart = roles
        .iter()
        .find(|(_, role)| matches!(*role, "kv_producer" | "kv_consumer"));
    if let Some((connector, role)) = apart {
        return Item::fail(
            ID,
            name,
            format!(
                "{connector} with {role}: prefill and decode are on different engines, which is not supported"
            ),
            FIX,
        );
    }
    let told: Vec<String> = roles
        .iter()
        .map(|(connector, role)| format!("{connector} with {role}"))
        .collect();
    // NIXL heeds no roles: who prefills and who decodes is up to the proxy in front
    // (`docs/features/nixl_connector_usage.md`).
    let nixl = roles
        .iter()
        .any(|(connector, _)| connector.contains("Nixl"));
    let unless = if nixl {
        ", unless a proxy in front of it splits them into prefill and decode, which is not supported"
    } else {
        ""
    };
    Item::ok(
        ID,
        name,
        format!("{}: requests are answered whole{unless}", told.join(", ")),
    )
}

/// Connectors and their roles: the configuration's own, and those of the connectors in a MultiConnector.
fn roles(config: &Value) -> Vec<(&str, &str)> {
    let inner = config.pointer("/kv_connector_extra_config/connectors");
    let inner = inner.and_then(Value::as_array).into_iter().flatten();
    let all = std::iter::once(config).chain(inner).take(CONNECTORS_MAX);
    all.map(|config| {
        let text = |name: &str| config.get(name).and_then(Value::as_str);
        (
            text("kv_connector").unwrap_or("KV transfer"),
            text("kv_role").unwrap_or("no role"),
        )
    })
    .collect()
}

fn of_metrics(name: &str, seen: &Seen) -> Item {
    let text = seen.metrics.as_deref().unwrap_or_default();
    let mut names = samples(text).map(|sample| sample.name);
    let transfer = names.find(|name| METRICS.iter().any(|of| name.starts_with(of)));
    match transfer {
        Some(metric) => Item::warn(
            ID,
            name,
            format!(
                "KV caches are transferred between engines ({metric}); in which role is not told. Prefill on one engine \
                 and decoding on another is not supported"
            ),
            FIX,
        ),
        None => Item::ok(
            ID,
            name,
            "no sign of KV transfers between engines in the metrics (roles are told by /server_info, which only \
             VLLM_SERVER_DEV_MODE=1 serves)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::item::Status;
    use crate::doctor::probe::{Failed, Peer};

    fn look(server_info: Option<Value>, metrics: &str) -> Item {
        let seen = Seen {
            health: Ok(()),
            version: None,
            models: Err(Failed::Unreadable),
            metrics: Ok(metrics.to_owned()),
            sources: None,
            server_info,
            events: Err(Peer::Nobody),
            replay: None,
            requests: None,
        };
        judge("x", &seen)
    }

    fn of(config: Value) -> Item {
        look(
            Some(json!({"vllm_config": {"kv_transfer_config": config}})),
            "",
        )
    }

    #[test]
    fn what_the_configuration_tells() {
        let config = |role: &str| json!({"kv_connector": "NixlConnector", "kv_role": role});
        assert_eq!(of(Value::Null).status, Status::Ok);
        for role in ["kv_producer", "kv_consumer"] {
            let item = of(config(role));
            assert_eq!(item.status, Status::Fail);
            assert!(
                item.found
                    .starts_with(&format!("NixlConnector with {role}"))
            );
            let several = json!({"kv_connector": "MultiConnector", "kv_role": "kv_both",
                "kv_connector_extra_config": {"connectors": [
                    {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}, config(role)]}});
            assert_eq!(of(several).status, Status::Fail);
        }
        let item = of(config("kv_both"));
        assert_eq!(item.status, Status::Ok);
        assert!(item.found.contains("unless a proxy"), "{item:?}");
        let offloads = json!({"kv_connector": "OffloadingConnector", "kv_role": "kv_both"});
        assert!(!of(offloads).found.contains("proxy"));
    }

    #[test]
    fn what_metrics_tell() {
        // The text form tells nothing of transfers.
        let text = || Some(json!({"vllm_config": "model='x', seed=0"}));
        let item = look(text(), "vllm:num_requests_running 0\n");
        assert_eq!(item.status, Status::Ok);
        assert!(item.found.contains("VLLM_SERVER_DEV_MODE"), "{item:?}");
        for metric in METRICS {
            let item = look(None, &format!("{metric}{{engine=\"0\"}} 1\n"));
            assert_eq!(item.status, Status::Warn);
            assert!(item.found.contains(metric));
        }
    }
}
