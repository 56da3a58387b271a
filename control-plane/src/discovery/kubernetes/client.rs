//! The way to the API server.

use std::time::Duration;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, Request};
use kube::{Client, Config, Resource};

use super::ask::Asked;
use crate::config::KubernetesConfig;
use crate::discovery::{Failure, Kind};

/// How long a connection may take, and an answer: longer than the longest watch is silent.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(75);

/// An API server, and a namespace there.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    pub(super) namespace: String,
}

impl Cluster {
    /// Reads what there is to read. Nothing is asked yet.
    pub(super) async fn connect(of: &KubernetesConfig) -> Result<Self, Failure> {
        let connected = Self::connected(of).await;
        connected.map_err(|error| Failure {
            kind: Kind::Client,
            text: format!("no way to the Kubernetes API server: {error:#}"),
        })
    }

    async fn connected(of: &KubernetesConfig) -> anyhow::Result<Self> {
        let mut config = match (&of.api_server, &of.kubeconfig) {
            (Some(url), _) => {
                let mut config = Config::new(url.parse().context("api_server")?);
                config.root_cert_file.clone_from(&of.ca_file);
                let token = of.token_file.as_ref();
                config.auth_info.token_file = token.map(|path| path.display().to_string());
                config
            }
            (None, Some(path)) => {
                let file = Kubeconfig::read_from(path)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
            }
            (None, None) => Config::infer()
                .await
                .context("neither a kubeconfig nor a pod's service account")?,
        };
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(READ);
        config.reset_reader_on_write = true;
        // A watch has pauses of its own, and tells of each failure.
        config.default_retry = false;
        let namespace = of.namespace.clone();
        Ok(Self {
            namespace: namespace.unwrap_or_else(|| config.default_namespace.clone()),
            client: Client::try_from(config)?,
        })
    }

    /// A kind of objects of the namespace.
    pub(super) fn asked(&self, resource: &ApiResource) -> Asked {
        let path = DynamicObject::url_path(resource, Some(&self.namespace));
        Asked {
            client: self.client.clone(),
            path: Request::new(path),
            resource: resource.plural.clone(),
            namespace: self.namespace.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pods;
    use crate::discovery::kubernetes::pool::{VERSIONS, resource};

    /// Over TLS as well: what encrypts is chosen at run time.
    #[tokio::test]
    async fn who_is_not_there_is_unreachable() {
        for url in ["https://127.0.0.1:1", "http://[::1]:1"] {
            let of = KubernetesConfig {
                namespace: Some("ml".into()),
                pods: Pods::Labels("app=vllm".into()),
                port: None,
                kubeconfig: None,
                api_server: Some(url.into()),
                token_file: None,
                ca_file: None,
            };
            let cluster = Cluster::connect(&of).await.unwrap();
            let refused = cluster.asked(&resource(VERSIONS[0])).get("p").await;
            let why = refused.unwrap_err().failure;
            assert_eq!(why.kind, Kind::Unreachable, "{}", why.text);
        }
        let of = KubernetesConfig {
            namespace: None,
            pods: Pods::Labels("app=vllm".into()),
            port: None,
            kubeconfig: Some("/nowhere/kubeconfig".into()),
            api_server: None,
            token_file: None,
            ca_file: None,
        };
        let why = Cluster::connect(&of).await.err().unwrap();
        assert_eq!(why.kind, Kind::Client);
        assert!(why.text.contains("/nowhere/kubeconfig"), "{}", why.text);
    }
}
