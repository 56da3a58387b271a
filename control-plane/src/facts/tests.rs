//! [`run`] over HTTP, against a small server that answers as engines do.

use std::sync::Mutex;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prefix_picker_core::prompt::Rules;
use serde_json::json;

use super::*;
use crate::engine::tests::{Gateway, config, engine_of};

const A: ReplicaIndex = ReplicaIndex(0);
const B: ReplicaIndex = ReplicaIndex(1);

/// What the engine says at the moment.
struct Says {
    version: &'static str,
    adapters: Vec<(&'static str, &'static str)>,
    max_model_len: u64,
    /// Wanted for `/v1/models`.
    key: Option<&'static str>,
}

type Shared = Arc<Mutex<Says>>;

async fn models(State(says): State<Shared>, headers: HeaderMap) -> Response {
    let says = says.lock().unwrap();
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if says.key.is_some() && given != says.key {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let base = json!({"id": "sim", "parent": null, "max_model_len": says.max_model_len});
    let adapters = says.adapters.iter();
    let adapters = adapters.map(|(name, path)| json!({"id": name, "root": path, "parent": "sim"}));
    let data: Vec<_> = std::iter::once(base).chain(adapters).collect();
    axum::Json(json!({ "data": data })).into_response()
}

async fn told_version(State(says): State<Shared>) -> Response {
    axum::Json(json!({"version": says.lock().unwrap().version})).into_response()
}

/// An engine's server, and who asks it.
struct Asked {
    says: Shared,
    engine: Arc<Engine>,
    metrics: Arc<Metrics>,
    gateway: Gateway,
    dir: PathBuf,
    tasks: JoinSet<()>,
}

impl Asked {
    async fn start(name: &str, says: Says, key_file: Option<&str>) -> Self {
        let dir = std::env::temp_dir().join(format!("prefix-picker-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let says = Arc::new(Mutex::new(says));
        let router = Router::new()
            .route("/v1/models", get(models))
            .route("/version", get(told_version))
            .with_state(says.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        let config = config(&dir);
        let engine = Arc::new(engine_of(&config));
        engine.open();
        let pool = &config.pools[0];
        let target = Target {
            api,
            api_key_file: key_file.map(|name| dir.join(name)),
            ..Target::new(A, pool, &pool.replicas[0])
        };
        let metrics = Arc::new(Metrics::new());
        tasks.spawn(run(
            target,
            Duration::from_millis(5),
            Duration::from_secs(5),
            reqwest::Client::new(),
            engine.clone(),
            metrics.clone(),
        ));
        Self {
            says,
            engine,
            metrics,
            gateway: Gateway::default(),
            dir,
            tasks,
        }
    }

    fn says(&self, change: impl FnOnce(&mut Says)) {
        change(&mut self.says.lock().unwrap());
    }

    /// Waits until gateways see something.
    async fn until(&mut self, what: &str, seen: impl Fn(&Gateway) -> bool) {
        for _ in 0..2000 {
            self.gateway.settle(&self.engine);
            if seen(&self.gateway) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("never seen: {what}");
    }

    fn failed_looks(&self) -> u64 {
        let labels = ReplicaLabels {
            pool: "one".to_owned(),
            replica: "a".to_owned(),
        };
        self.metrics.models_errors.get_or_create(&labels).get()
    }

    async fn failed(&self, at_least: u64) {
        while self.failed_looks() < at_least {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(mut self) {
        self.tasks.shutdown().await;
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn adapters(gateway: &Gateway) -> Vec<&str> {
    let pool = &gateway.head.as_ref().unwrap().pools[0];
    pool.loras.iter().map(|lora| lora.name.as_str()).collect()
}

#[tokio::test]
async fn what_an_engine_says_reaches_gateways() {
    let says = Says {
        version: "0.31.0",
        adapters: vec![("sql", "/1")],
        max_model_len: 4096,
        key: None,
    };
    let mut asked = Asked::start("facts-says", says, None).await;
    asked
        .until("the first answer", |gateway| {
            let profile = gateway.profile(0);
            adapters(gateway) == ["sql"]
                && profile.max_model_len == 4096
                && profile.rules == Rules::of_version("0.31.0")
        })
        .await;
    asked.says(|says| {
        says.adapters.insert(0, ("law", "/2"));
        says.max_model_len = 2048;
    });
    asked
        .until("more adapters", |gateway| {
            adapters(gateway) == ["law", "sql"] && gateway.profile(0).max_model_len == 2048
        })
        .await;
    assert_eq!(asked.failed_looks(), 0);
    asked.stop().await;
}

#[tokio::test]
async fn a_version_of_other_rules_replaces_the_profile() {
    let says = Says {
        version: "0.31.0",
        adapters: vec![],
        max_model_len: 4096,
        key: None,
    };
    let mut asked = Asked::start("facts-version", says, None).await;
    let follows = |version: &'static str| {
        move |gateway: &Gateway| gateway.profile(0).rules == Rules::of_version(version)
    };
    asked.until("the old rules", follows("0.31.0")).await;
    let changes = asked.engine.pools()[0].profile_changes();
    let before = asked.gateway.profile(0).clone();
    // Another version of the same rules changes nothing.
    asked.says(|says| {
        says.version = "0.30.0";
        says.max_model_len = 1024;
    });
    asked
        .until("the answer after it", |g| {
            g.profile(0).max_model_len == 1024
        })
        .await;
    assert_eq!(asked.engine.pools()[0].profile_changes(), changes);
    // Another replica's, with which there is no majority, neither.
    asked.engine.set_version(B, "0.33.0");
    assert_eq!(asked.engine.pools()[0].profile_changes(), changes);
    // The upgrade.
    asked.says(|says| says.version = "0.33.0");
    asked.until("the new rules", follows("0.33.0")).await;
    assert_eq!(asked.engine.pools()[0].profile_changes(), changes + 1);
    let now = asked.gateway.profile(0);
    assert_ne!(now.seed_hash(), before.seed_hash());
    assert_eq!(now.max_model_len, 1024, "what else is known stays");
    asked.stop().await;
}

#[tokio::test]
async fn an_engine_with_a_key_is_asked_with_it() {
    let says = Says {
        version: "0.33.0",
        adapters: vec![("sql", "/1")],
        max_model_len: 4096,
        key: Some("secret"),
    };
    let mut asked = Asked::start("facts-key", says, Some("key")).await;
    // The file is not there yet; it is read anew each time.
    asked.failed(2).await;
    asked.gateway.settle(&asked.engine);
    assert_eq!(adapters(&asked.gateway), [""; 0]);
    std::fs::write(asked.dir.join("key"), "secret\n").unwrap();
    asked
        .until("the adapter", |gateway| adapters(gateway) == ["sql"])
        .await;
    // Refused again, it stays what it was known to be.
    std::fs::write(asked.dir.join("key"), "wrong").unwrap();
    let failed = asked.failed_looks();
    asked.failed(failed + 2).await;
    asked.gateway.settle(&asked.engine);
    assert_eq!(adapters(&asked.gateway), ["sql"]);
    asked.stop().await;
}
