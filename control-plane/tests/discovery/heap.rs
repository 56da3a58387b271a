//! What is allocated for replicas that are gone is freed. Counted, since an allocator keeps pages that a
//! process' size in memory then shows for ever.
//!
//! Alone in its process, hence ignored: `make test-native` runs it by its name.

use std::alloc::System;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use super::api::pod;
use super::engines::BLOCKS;
use super::soak::ip;
use super::{Api, ControlPlane, Engines, kubernetes, temp, world};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: usize = 40;
/// How often in a round all of them are replaced.
const TIMES: usize = 3;
/// What may be left of a round: of 1 KB a replica it would be more.
const LEFT: usize = 64 << 10;
/// Connections to engines that are gone are forgotten within twice the 10 s that they may be idle.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Bytes that are allocated now.
fn live() -> usize {
    let stats = COUNTING.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Pods come, are replaced by others, and go.
async fn round(number: usize, api: &Api, engines: &mut Engines, cp: &ControlPlane) {
    for time in number * TIMES..(number + 1) * TIMES {
        let pods = time * PODS..(time + 1) * PODS;
        for pod_number in pods.clone() {
            engines.run(&ip(pod_number), pod_number as u64).await;
            api.set_pod(&pod(&format!("p{pod_number}"), &ip(pod_number)));
        }
        cp.until("their blocks", |cp| {
            let mut names = pods.clone().map(|number| format!("p{number}"));
            names.all(|name| cp.blocks(&name) == BLOCKS)
        })
        .await;
        for pod_number in pods {
            api.delete_pod(&format!("p{pod_number}"));
            engines.end(&ip(pod_number)).await;
        }
        cp.until_states(&[]).await;
    }
    api.compact();
}

/// Bytes, once there are no more than `most`, or after [`FORGOTTEN`].
async fn settled(most: usize) -> usize {
    let begin = Instant::now();
    while live() > most && begin.elapsed() < FORGOTTEN {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    live()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "counts allocations, so nothing else may run in its process"]
async fn all_that_was_allocated_for_replicas_is_freed() {
    let (api, mut engines) = world().await;
    let (_temp, dir) = temp("heap");
    let which = format!("label_selector: app=vllm, port: {}", engines.ports.http);
    let discovery = kubernetes(&api, engines.ports, &which);
    let cp = ControlPlane::start(&dir, &discovery).await;
    // What is made once, with the first ones.
    round(0, &api, &mut engines, &cp).await;
    tokio::time::sleep(FORGOTTEN / 2).await;
    let before = live();
    round(1, &api, &mut engines, &cp).await;
    let there = live();
    let after = settled(before + LEFT).await;
    println!(
        "{} more replicas: {before} bytes before, {there} at its end, {after} after",
        PODS * TIMES
    );
    assert!(after <= before + LEFT, "{after} bytes, {before} before");
    cp.stop().await;
}
