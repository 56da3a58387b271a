//! Endpoints are only named where Envoy can take them, and it is told where it does not.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::stack::{Cut, Options, Places, Stack};

use crate::faults::{chat, words};

const PATH: &str = "/v1/chat/completions";

/// A route shares its requests between the pool's cluster and one that the pool does not name.
///
/// The latter is the pool's engines under another name, so that an endpoint that was named for it would be
/// taken.
const WEIGHTED: &str = "                  weighted_clusters:
                    clusters:
                    - name: pool
                      weight: 60
                      response_headers_to_add: [{header: {key: x-by, value: pool}}]
                    - name: canary
                      weight: 40
                      response_headers_to_add: [{header: {key: x-by, value: canary}}]
";
const CANARY: &str = "  - name: canary
    connect_timeout: 1s
    lb_policy: CLUSTER_PROVIDED
    cluster_type:
      name: envoy.clusters.aggregate
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig
        clusters: [pool]
";

/// Of a route with weighted clusters only the requests for the pool's own have endpoints named.
pub(crate) async fn canary(places: &Places) -> Result<()> {
    let edit = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let control_plane = "  # The control plane: the filter polls it";
    let options = Options {
        envoy_edits: vec![
            edit("                  cluster: pool\n", WEIGHTED),
            edit(control_plane, &format!("{CANARY}{control_plane}")),
            // The log tells by which cluster, in place of the engine.
            edit("%UPSTREAM_HOST%", "%RESP(X-BY)%"),
        ],
        ..Options::default()
    };
    let mut stack = Stack::start("canary", places, options).await?;
    let client = stack.client()?;
    let body = chat(&words(7, 300), "Hi.");
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for i in 0..60 {
        let id = format!("canary-{i}");
        let reply = client.post(PATH, &body, &id, &[]).await?;
        ensure!(reply.status == 200, "{id}: {}", reply.status);
        let entry = stack.log.wait(&id).await?;
        let cluster = entry.upstream.context("no cluster in the log")?;
        ensure!(
            entry.endpoint.is_some() == (cluster == "pool"),
            "{id} by {cluster}: {:?} named",
            entry.endpoint
        );
        let reasons = seen.entry(cluster).or_default();
        reasons.push(entry.reason.unwrap_or_default());
    }
    let count = |cluster: &str| seen.get(cluster).map_or(0, Vec::len);
    println!(
        "  {} by the pool's cluster, all named; {} by another, none named: {:?}",
        count("pool"),
        count("canary"),
        seen.get("canary").and_then(|reasons| reasons.first())
    );
    ensure!(
        count("pool") > 10 && count("canary") > 10,
        "not both: {seen:?}"
    );
    let missed = stack.filter_metric("missed_override_total").await?;
    ensure!(missed == 0, "{missed} overrides missed");
    Ok(())
}

/// A cluster without `override_host` takes no notice of what is named: counted, and said in Envoy's log.
pub(crate) async fn missed_override(places: &Places) -> Result<()> {
    let options = Options {
        envoy_cuts: vec![Cut {
            from: "    load_balancing_policy:\n".to_owned(),
            until: "    circuit_breakers:\n".to_owned(),
        }],
        ..Options::default()
    };
    let mut stack = Stack::start("missed", places, options).await?;
    let client = stack.client()?;
    let body = chat(&words(7, 300), "Hi.");
    let mut elsewhere = 0;
    for i in 0..30 {
        let id = format!("missed-{i}");
        let reply = client.post(PATH, &body, &id, &[]).await?;
        ensure!(reply.status == 200, "{id}: {}", reply.status);
        let entry = stack.log.wait(&id).await?;
        let named = entry.endpoint.context("nothing named")?;
        let first = named.split(',').next().map(str::to_owned);
        elsewhere += u64::from(first != entry.upstream);
    }
    let missed = stack.filter_metric("missed_override_total").await?;
    let log = stack.envoy.as_ref().map(|envoy| envoy.log_tail(10_000));
    let lines = log.unwrap_or_default().matches("was named, but").count();
    println!(
        "  {elsewhere} of 30 served elsewhere, {missed} counted, {lines} lines in Envoy's log"
    );
    ensure!(elsewhere > 0 && missed == elsewhere, "{missed} counted");
    // One a worker and minute.
    ensure!((1..=2).contains(&lines), "{lines} lines");
    Ok(())
}
