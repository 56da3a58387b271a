//! LoRA adapters: those of the command line, and vLLM's paths to load and unload them at run time
//! (`VLLM_ALLOW_RUNTIME_LORA_UPDATING=1`; vLLM 0.32: `entrypoints/openai/models/serving.py`).

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::{ApiError, App};
use crate::config::Lora;

/// Adapters loaded now.
#[derive(Debug, Default)]
pub(crate) struct Adapters {
    loaded: Vec<(u32, Lora)>,
    ids: u32,
}

impl Adapters {
    pub(crate) fn new(loras: &[Lora]) -> Self {
        let mut adapters = Self::default();
        for lora in loras {
            adapters.put(lora.clone());
        }
        adapters
    }

    /// Id (in the order of loading, kept by a reload in place) and adapter.
    pub(crate) fn get(&self, name: &str) -> Option<(u32, Lora)> {
        let found = self.loaded.iter().find(|(_, lora)| lora.name == name);
        found.cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Lora> {
        self.loaded.iter().map(|(_, lora)| lora)
    }

    fn put(&mut self, lora: Lora) {
        match self.loaded.iter_mut().find(|(_, l)| l.name == lora.name) {
            Some((_, known)) => *known = lora,
            None => {
                self.ids += 1;
                self.loaded.push((self.ids, lora));
            }
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Load {
    lora_name: String,
    lora_path: String,
    #[serde(default)]
    load_inplace: bool,
}

#[derive(Deserialize)]
pub(super) struct Unload {
    lora_name: String,
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|e| ApiError::bad_request(e.to_string()))
}

fn invalid(message: String) -> ApiError {
    ApiError(StatusCode::BAD_REQUEST, "InvalidUserInput", message)
}

pub(super) async fn load(State(app): State<Arc<App>>, body: Bytes) -> Result<String, ApiError> {
    let ask: Load = read(&body)?;
    let name = ask.lora_name;
    if name.is_empty() || ask.lora_path.is_empty() {
        return Err(invalid(
            "Both 'lora_name' and 'lora_path' must be provided.".into(),
        ));
    }
    if name == app.shared.config.model {
        return Err(invalid(format!(
            "The lora adapter '{name}' conflicts with a served base model."
        )));
    }
    let mut adapters = app.shared.adapters();
    if adapters.get(&name).is_some() && !ask.load_inplace {
        return Err(invalid(format!(
            "The lora adapter '{name}' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True."
        )));
    }
    adapters.put(Lora {
        name: name.clone(),
        path: ask.lora_path,
    });
    Ok(format!(
        "Success: LoRA adapter '{name}' added successfully."
    ))
}

pub(super) async fn unload(State(app): State<Arc<App>>, body: Bytes) -> Result<String, ApiError> {
    let Unload { lora_name: name } = read(&body)?;
    let mut adapters = app.shared.adapters();
    let before = adapters.loaded.len();
    adapters.loaded.retain(|(_, lora)| lora.name != name);
    if adapters.loaded.len() == before {
        let message = format!("The lora adapter '{name}' cannot be found.");
        return Err(ApiError(StatusCode::NOT_FOUND, "NotFoundError", message));
    }
    Ok(format!(
        "Success: LoRA adapter '{name}' removed successfully."
    ))
}
