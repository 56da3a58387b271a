//! What the control plane's figures say of requests.

use prefix_picker::doctor::Status::{Fail, Warn};
use prefix_picker::doctor::control_plane::Engines;
use prefix_picker::doctor::{Report, control_plane};
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::{Decision, Decisions};

use super::control::{Running, healthy};
use super::fleet::expect;

pub(crate) fn decision(first: u64, second: u64) -> Decision {
    Decision {
        chosen: 0,
        prompt_tokens: 1000,
        first,
        second,
        ..Decision::default()
    }
}

/// Tells of requests as a gateway does.
pub(crate) fn tell(running: &Running, mut records: Vec<Decision>) {
    let replica = running.config.pools[0].replicas[0].endpoint;
    for record in &mut records {
        record.chosen = place(&replica.to_string());
    }
    let message = Decisions {
        records,
        ..Decisions::default()
    };
    assert_eq!(
        running.post("/v1/decisions", "a-token", message.encode().unwrap()),
        200
    );
}

#[test]
fn prompts_with_a_timestamp_in_front() {
    let (_fleet, running) = healthy("starts");
    // 40 as they should be, and 60 that begin with something new each time.
    let mut traffic: Vec<Decision> = (0..40).map(|_| decision(1, 2)).collect();
    traffic.extend((0..60).map(|n| decision(100 + n, 7)));
    tell(&running, traffic);
    expect(
        &running.doctor(),
        &["traffic.", "control_plane."],
        &[(
            "traffic.volatile_start",
            "demo",
            Warn,
            "59 % of requests and 59 % of prompt tokens",
            "timestamp",
        )],
    );
}

/// The figures as text: what takes long to happen.
#[test]
fn what_the_figures_say() {
    let (_fleet, running) = healthy("figures");
    let metrics = running.get("/metrics").1;
    let status: serde_json::Value = serde_json::from_str(&running.get("/v1/status").1).unwrap();
    let look = |edits: &[(&str, &str)]| {
        let mut metrics = metrics.clone();
        for (from, to) in edits {
            assert!(metrics.contains(from), "{from} is not in {metrics}");
            metrics = metrics.replace(from, to);
        }
        let pages = control_plane::Pages {
            ready: (200, "ready".to_owned()),
            metrics,
            status: status.clone(),
        };
        Report {
            items: control_plane::judge(&running.config, "cp", &pages, &Engines::default()),
            ..Report::default()
        }
    };
    expect(&look(&[]), &["control_plane."], &[]);
    let mismatch = "prediction_mismatch{pool=\"demo\"} ";
    expect(
        &look(&[(&format!("{mismatch}0"), &format!("{mismatch}1"))]),
        &["control_plane."],
        &[(
            "control_plane.accuracy",
            "demo",
            Fail,
            "not what engines find",
            "engine.template",
        )],
    );
    let dropped = "index_dropped_blocks{pool=\"demo\"} ";
    expect(
        &look(&[(&format!("{dropped}0"), &format!("{dropped}5"))]),
        &["control_plane."],
        &[(
            "control_plane.memory",
            "cp",
            Warn,
            "demo",
            "memory_budget_bytes",
        )],
    );
    let state = |state: &str, value: u8| {
        format!("replica_state{{pool=\"demo\",replica=\"b\",state=\"{state}\"}} {value}")
    };
    for (state_now, status, cure) in [
        ("down", Fail, "engine.reachable"),
        ("draining", Warn, "undrain"),
    ] {
        let ready = ["ready", "warming"].map(|word| (state(word, 1), state(word, 0)));
        let mut edits: Vec<_> = ready
            .iter()
            .map(|(from, to)| (from.as_str(), to.as_str()))
            .collect();
        edits.retain(|(from, _)| metrics.contains(from));
        let now = (state(state_now, 0), state(state_now, 1));
        edits.push((&now.0, &now.1));
        expect(
            &look(&edits),
            &["control_plane."],
            &[("control_plane.replicas", "cp", status, "b", cure)],
        );
    }
    let bad = "prefix_picker_kv_events_total{pool=\"demo\",replica=\"b\",kind=\"undecodable\"} 1\n";
    expect(
        &look(&[("# EOF", &format!("{bad}# EOF"))]),
        &["control_plane."],
        &[(
            "control_plane.events_readable",
            "cp",
            Fail,
            "b",
            "decode-events",
        )],
    );
    let lost =
        "prefix_picker_replica_resets_total{pool=\"demo\",replica=\"b\",why=\"history_lost\"} 2\n";
    expect(
        &look(&[("# EOF", &format!("{lost}# EOF"))]),
        &["control_plane."],
        &[(
            "control_plane.resets",
            "cp",
            Warn,
            "b (history_lost: 2)",
            "buffer_steps",
        )],
    );
}
