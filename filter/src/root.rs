//! Glue: Envoy's root context. No decisions here.

use std::cell::Cell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::config::{self, Config};
use crate::host::{Envoy, Host};
use crate::request::Http;
use crate::sync;
use crate::vm;

thread_local! {
    /// The root context that ticks for its VM: the one configured last. Those of older
    /// configurations go on ticking for a while.
    static ACTIVE: Cell<Option<u32>> = const { Cell::new(None) };
}

/// One configuration's root context.
pub(crate) struct Root {
    id: u32,
    config: Option<Rc<Config>>,
}

impl Root {
    pub(crate) fn new(id: u32) -> Self {
        Self { id, config: None }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if ACTIVE.get() == Some(self.id) {
            ACTIVE.set(None);
        }
        vm::with(&Envoy, |vm| {
            vm.poller.root_gone(self.id);
            vm.choice.root_gone(self.id);
            vm.news.root_gone(self.id);
            vm.decisions.root_gone(self.id);
        });
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _trailers: usize) {
        if let Some(config) = &self.config {
            let call = (self.id, token);
            vm::with(&Envoy, |vm| {
                sync::answered(vm, &Envoy, config, call, (headers, body))
            });
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _bytes: usize) -> bool {
        match config::parse(&Envoy.plugin_configuration()) {
            Ok(config) => {
                let source = match &config.standalone {
                    Some(standalone) => {
                        standalone.publish(&Envoy);
                        "standalone".to_owned()
                    }
                    None => config.planes(),
                };
                log::info!(
                    "prefix-picker {}: {source}, bodies up to {} bytes",
                    env!("CARGO_PKG_VERSION"),
                    config.max_body_bytes
                );
                self.config = Some(Rc::new(config));
                ACTIVE.set(Some(self.id));
                vm::with(&Envoy, |_| ());
                Envoy.set_tick_period_ms(sync::TICK_MS);
                true
            }
            Err(error) => {
                log::error!("the plugin configuration is wrong: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        let Some(config) = &self.config else { return };
        let active = ACTIVE.get().unwrap_or(self.id);
        ACTIVE.set(Some(active));
        if active == self.id {
            vm::with(&Envoy, |vm| sync::tick(vm, &Envoy, config, self.id));
        }
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Http::new(self.config.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
