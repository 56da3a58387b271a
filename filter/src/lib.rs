//! The proxy-wasm filter: picks the replica that holds a request's prefix, inside Envoy.
//!
//! Three jobs, all written against the [`host::Host`] trait and tested natively over a fake host:
//!
//! | job | modules |
//! |---|---|
//! | a request: hold, parse, look up, name endpoints, continue | [`router`], [`pools`], [`load`], [`recent`] |
//! | the response: what the engine found cached, against what was predicted | [`feedback`] |
//! | the table: one poller per Envoy process brings it into shared data | [`sync`], [`lease`] |
//!
//! The glue to Envoy ([`host`]'s real form, `root`, `request`) exists in wasm builds only, since
//! host calls do not link anywhere else. State that must outlive a configuration change is in
//! [`vm`], one value per VM. What is absent on purpose: any path that ends a request. Whatever goes
//! wrong is a [`reason::Reason`], a counter, and a request that continues.

pub mod config;
pub mod decisions;
pub mod feedback;
pub mod health;
pub mod host;
pub mod lease;
pub mod load;
pub mod metrics;
pub mod mode;
pub mod news;
pub mod pools;
pub mod profiles;
pub mod quiet;
pub mod reason;
pub mod recent;
pub mod replicas;
pub mod router;
pub mod session;
pub mod standalone;
pub mod sync;
pub mod vm;

#[cfg(target_family = "wasm")]
mod request;
#[cfg(target_family = "wasm")]
mod root;

#[cfg(test)]
mod testing;

#[cfg(target_family = "wasm")]
mod start {
    use proxy_wasm::types::LogLevel;

    proxy_wasm::main! {{
        proxy_wasm::set_log_level(LogLevel::Info);
        proxy_wasm::set_root_context(|id| Box::new(crate::root::Root::new(id)));
    }}
}
