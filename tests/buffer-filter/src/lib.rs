//! A proxy-wasm filter that holds each request until its body is complete, copies the body out as
//! any body-reading filter must, and lets it go on unchanged. The yardstick of the benchmarks: what
//! is slower than this is prefix-picker's own work.
#![cfg(target_family = "wasm")]

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, ContextType};

mod start {
    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|_| Box::new(crate::Root));
    }}
}

struct Root;

impl Context for Root {}

impl RootContext for Root {
    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, _: u32) -> Option<Box<dyn HttpContext>> {
        Some(Box::new(Buffer))
    }
}

struct Buffer;

impl Context for Buffer {}

impl HttpContext for Buffer {
    fn on_http_request_headers(&mut self, _: usize, end_of_stream: bool) -> Action {
        if end_of_stream {
            Action::Continue
        } else {
            Action::Pause
        }
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if !end_of_stream {
            return Action::Pause;
        }
        // An empty body would have no bytes to give; either way the request goes on.
        let _ = self.get_http_request_body(0, size);
        Action::Continue
    }

    fn on_http_request_trailers(&mut self, _: usize) -> Action {
        Action::Continue
    }
}
