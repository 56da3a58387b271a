//! The way to the API server, and what its failures mean.

use std::time::Duration;

use anyhow::Context;
use kube::api::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicResourceScope, Status};
use kube::{Client, Config, Resource};

use crate::config::KubernetesConfig;
use crate::discovery::{Failure, Kind};

/// How long a connection may take, and an answer: longer than the longest watch is silent.
const CONNECT: Duration = Duration::from_secs(5);
const READ: Duration = Duration::from_secs(75);

/// An API server, and a namespace there.
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

    pub(super) fn asked(&self, resource: &str) -> Asked {
        Asked {
            resource: resource.to_owned(),
            namespace: self.namespace.clone(),
        }
    }

    /// A kind of objects of the namespace.
    pub(super) fn api<K>(&self, resource: &ApiResource) -> Api<K>
    where
        K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    {
        Api::namespaced_with(self.client.clone(), &self.namespace, resource)
    }
}

/// What is asked for, in the texts of failures.
pub(super) struct Asked {
    resource: String,
    namespace: String,
}

impl Asked {
    pub(super) fn failure(&self, error: &kube::Error, verb: &str) -> Failure {
        failure(error, &self.resource, verb, &self.namespace)
    }

    pub(super) fn status(&self, status: &Status, verb: &str) -> Failure {
        of_status(status, &self.resource, verb, &self.namespace)
    }

    pub(super) fn broke_off(&self, error: &kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) if status.code != 0 => self.status(status, "watch"),
            // Some other object of JSON, which kube takes for a status; its own text would print all of it.
            kube::Error::Api(_) => self.watch(
                Kind::Disconnected,
                "tells what is no event (is it an API server?)",
            ),
            error => self.watch(Kind::Disconnected, &format!("broke off: {error}")),
        }
    }

    pub(super) fn ended_at_once(&self) -> Failure {
        self.watch(
            Kind::Disconnected,
            "ended at once, without an event (is it an API server?)",
        )
    }

    pub(super) fn no_version(&self) -> Failure {
        self.watch(
            Kind::Server,
            "cannot begin: the list tells no resource version",
        )
    }

    fn watch(&self, kind: Kind, what: &str) -> Failure {
        let Self {
            resource,
            namespace,
        } = self;
        Failure {
            kind,
            text: format!("the watch on {resource} in namespace {namespace:?} {what}"),
        }
    }
}

/// What a failure of a request means.
pub(super) fn failure(error: &kube::Error, resource: &str, verb: &str, namespace: &str) -> Failure {
    let kind = match error {
        kube::Error::Api(status) => return of_status(status, resource, verb, namespace),
        kube::Error::HyperError(_) | kube::Error::Service(_) => Kind::Unreachable,
        kube::Error::ReadEvents(_) => Kind::Disconnected,
        kube::Error::Auth(_) => Kind::Client,
        _ => Kind::Server,
    };
    let error = anyhow::Chain::new(error)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ");
    Failure {
        kind,
        text: format!("cannot {verb} {resource} in namespace {namespace:?}: {error}"),
    }
}

fn of_status(status: &Status, resource: &str, verb: &str, namespace: &str) -> Failure {
    let (kind, cure) = match status.code {
        401 => (
            Kind::Forbidden,
            "; the token is not taken: check token_file or the service account",
        ),
        403 => (
            Kind::Forbidden,
            "; give the control plane's service account a Role with the verbs get, list and watch on it",
        ),
        404 => (Kind::NotFound, ""),
        410 => (Kind::Gone, "; the list is read anew"),
        _ => (Kind::Server, ""),
    };
    let (code, message) = (status.code, &status.message);
    Failure {
        kind,
        text: format!(
            "cannot {verb} {resource} in namespace {namespace:?}: {code} {message}{cure}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Pods;
    use crate::discovery::kubernetes::pool::{VERSIONS, resource};

    #[test]
    fn what_is_refused_is_said_with_verb_and_resource() {
        let status = |code: u16, message: &str| Status::failure(message, "").with_code(code);
        let said =
            "pods is forbidden: User \"system:serviceaccount:ml:pp\" cannot list resource \"pods\"";
        let failure = of_status(&status(403, said), "pods", "list", "ml");
        assert_eq!(failure.kind, Kind::Forbidden);
        assert_eq!(
            failure.text,
            format!(
                "cannot list pods in namespace \"ml\": 403 {said}; give the control plane's service account a Role with the \
                 verbs get, list and watch on it"
            )
        );
        let kinds = [401, 404, 410, 500]
            .map(|code| of_status(&status(code, ""), "pods", "watch", "ml").kind);
        assert_eq!(
            kinds,
            [Kind::Forbidden, Kind::NotFound, Kind::Gone, Kind::Server]
        );
    }

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
            let api: Api<super::super::pool::PoolObject> = cluster.api(&resource(VERSIONS[0]));
            let error = api.get("p").await.unwrap_err();
            let why = failure(&error, "inferencepools", "get", "ml");
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
