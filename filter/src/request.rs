//! Glue: Envoy's HTTP context. No decisions here.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use crate::config::Config;
use crate::host::Envoy;
use crate::router::{Flow, Request};
use crate::vm::{self, Vm};

/// One stream.
pub(crate) struct Http {
    request: Request,
    config: Option<Rc<Config>>,
}

impl Http {
    pub(crate) fn new(config: Option<Rc<Config>>) -> Self {
        Self {
            request: Request::default(),
            config,
        }
    }

    fn run(&mut self, work: impl FnOnce(&mut Request, &mut Vm, &Config) -> Flow) -> Action {
        let Some(config) = &self.config else {
            return Action::Continue;
        };
        match vm::with(&Envoy, |vm| work(&mut self.request, vm, config)) {
            Some(Flow::Pause) => Action::Pause,
            _ => Action::Continue,
        }
    }
}

impl Drop for Http {
    /// The last chance to give the load back, should the stream end without a log.
    fn drop(&mut self) {
        vm::with(&Envoy, |vm| self.request.on_end(vm, &Envoy));
    }
}

impl Context for Http {}

impl HttpContext for Http {
    fn on_http_request_headers(&mut self, _headers: usize, end_of_stream: bool) -> Action {
        self.run(|r, vm, config| r.on_request_headers(vm, &Envoy, config, end_of_stream))
    }

    fn on_http_request_body(&mut self, bytes: usize, end_of_stream: bool) -> Action {
        self.run(|r, vm, config| r.on_request_body(vm, &Envoy, config, bytes, end_of_stream))
    }

    fn on_http_request_trailers(&mut self, _trailers: usize) -> Action {
        self.run(|r, vm, config| r.on_request_trailers(vm, &Envoy, config))
    }

    fn on_http_response_headers(&mut self, _headers: usize, end_of_stream: bool) -> Action {
        vm::with(&Envoy, |vm| {
            self.request.on_response_headers(vm, &Envoy, end_of_stream)
        });
        Action::Continue
    }

    fn on_http_response_body(&mut self, bytes: usize, end_of_stream: bool) -> Action {
        vm::with(&Envoy, |vm| {
            self.request
                .on_response_body(vm, &Envoy, bytes, end_of_stream)
        });
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _trailers: usize) -> Action {
        vm::with(&Envoy, |vm| self.request.on_response_end(vm, &Envoy));
        Action::Continue
    }

    fn on_log(&mut self) {
        vm::with(&Envoy, |vm| self.request.on_end(vm, &Envoy));
    }
}
