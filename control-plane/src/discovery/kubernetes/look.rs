//! In which API group an `InferencePool` is: looked for at the start, and when it is gone.

use kube::core::ApiResource;
use tokio::task::JoinSet;

use super::client::Cluster;
use super::pool::{self, VERSIONS};
use super::{Failure, Kind, RETRY};

/// The version in which the pool is there.
pub(super) async fn find_pool(cluster: &Cluster, name: &str) -> Result<ApiResource, Failure> {
    let mut why = None;
    for version in VERSIONS {
        let resource = pool::resource(version);
        match cluster.asked(&resource).get(name).await {
            Ok(()) => return Ok(resource),
            Err(refused) if refused.failure.kind == Kind::NotFound => {}
            // Who may see one group alone finds it there.
            Err(refused) => why = why.or(Some(refused.failure)),
        }
    }
    let versions = VERSIONS.map(|(group, version)| format!("{group}/{version}"));
    Err(why.unwrap_or_else(|| Failure {
        kind: Kind::NotFound,
        text: format!(
            "no InferencePool {name:?} in namespace {:?} (looked for {})",
            cluster.namespace,
            versions.join(" and ")
        ),
    }))
}

/// Looks for a pool that is gone, now and then. Ends when dropped.
#[derive(Default)]
pub(super) struct Looking(JoinSet<ApiResource>);

impl Looking {
    /// Unless it does so already.
    pub(super) fn begin(&mut self, cluster: &Cluster, name: &str) {
        if !self.0.is_empty() {
            return;
        }
        let (cluster, name) = (cluster.clone(), name.to_owned());
        self.0.spawn(async move {
            loop {
                tokio::time::sleep(RETRY).await;
                if let Ok(resource) = find_pool(&cluster, &name).await {
                    return resource;
                }
            }
        });
    }

    pub(super) fn end(&mut self) {
        self.0 = JoinSet::new();
    }

    /// Where it is. Nothing is lost where it is dropped before it is ready.
    pub(super) async fn found(&mut self) -> ApiResource {
        match self.0.join_next().await {
            Some(Ok(resource)) => resource,
            _ => std::future::pending().await,
        }
    }
}
