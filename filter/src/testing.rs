//! A host in memory: stateful shared data with versions, headers, clocks, calls, metrics.

pub(crate) mod fleet;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::host::{CallAnswer, CallRefused, CasMismatch, Host, MetricId, Shared};

/// A call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) token: u32,
    pub(crate) cluster: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct FakeHost {
    pub(crate) now_us: Cell<u64>,
    pub(crate) shared: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    cas: Cell<u32>,
    /// Reads and writes of shared data.
    pub(crate) shared_calls: Cell<u64>,
    pub(crate) request_headers: RefCell<BTreeMap<String, String>>,
    pub(crate) response_headers: RefCell<BTreeMap<String, String>>,
    /// Whether Envoy still holds the request headers: touching them otherwise fails the test.
    pub(crate) headers_gone: Cell<bool>,
    pub(crate) body: RefCell<Vec<u8>>,
    /// The piece of the response's body that is passing.
    pub(crate) response_body: RefCell<Vec<u8>>,
    pub(crate) properties: RefCell<BTreeMap<String, Vec<u8>>>,
    pub(crate) filter_state: RefCell<BTreeMap<String, String>>,
    pub(crate) calls: RefCell<Vec<Call>>,
    pub(crate) refuse_calls: Cell<bool>,
    pub(crate) answer: RefCell<CallAnswer>,
    names: RefCell<Vec<String>>,
    values: RefCell<BTreeMap<String, u64>>,
    pub(crate) tick_ms: Cell<u32>,
    seeds: Cell<u64>,
}

impl FakeHost {
    pub(crate) fn advance_ms(&self, ms: u64) {
        self.now_us.set(self.now_us.get() + ms * 1_000);
    }

    /// A counter's or gauge's value, by the name's end behind `prefix_picker_filter_`.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let name = format!("prefix_picker_filter_{name}");
        self.values.borrow().get(&name).copied().unwrap_or(0)
    }

    /// Requests counted with a reason.
    pub(crate) fn requests(&self, reason: &str) -> u64 {
        self.metric(&format!("requests_total_reason=_={reason}_=_"))
    }

    /// Calls that were made to a path.
    pub(crate) fn calls_to(&self, path: &str) -> Vec<Call> {
        let to = |call: &&Call| call.headers.iter().any(|(n, v)| n == ":path" && v == path);
        self.calls.borrow().iter().filter(to).cloned().collect()
    }

    fn define(&self, name: &str) -> MetricId {
        let mut names = self.names.borrow_mut();
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        MetricId(u32::try_from(at).unwrap())
    }

    fn name(&self, id: MetricId) -> String {
        self.names.borrow()[id.0 as usize].clone()
    }
}

impl Host for FakeHost {
    fn unix_time_ns(&self) -> u64 {
        1_700_000_000_000_000_000 + self.now_us.get() * 1_000
    }

    fn monotonic_us(&self) -> u64 {
        self.now_us.get()
    }

    fn random_seed(&self) -> u64 {
        self.seeds.set(self.seeds.get() + 1);
        self.seeds.get().wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn request_header(&self, name: &str) -> Option<String> {
        assert!(!self.headers_gone.get(), "no request header map any more");
        self.request_headers.borrow().get(name).cloned()
    }

    fn set_request_header(&self, name: &str, value: &str) {
        assert!(!self.headers_gone.get(), "no request header map any more");
        self.request_headers
            .borrow_mut()
            .insert(name.to_owned(), value.to_owned());
    }

    fn remove_request_header(&self, name: &str) {
        assert!(!self.headers_gone.get(), "no request header map any more");
        self.request_headers.borrow_mut().remove(name);
    }

    fn response_header(&self, name: &str) -> Option<String> {
        self.response_headers.borrow().get(name).cloned()
    }

    fn set_response_header(&self, name: &str, value: &str) {
        self.response_headers
            .borrow_mut()
            .insert(name.to_owned(), value.to_owned());
    }

    fn request_body(&self, max: usize) -> Vec<u8> {
        let body = self.body.borrow();
        body[..body.len().min(max)].to_vec()
    }

    fn replace_body_start(&self, len: usize, with: &[u8]) {
        self.body.borrow_mut().splice(..len, with.iter().copied());
    }

    fn response_body(&self, start: usize, max: usize) -> Vec<u8> {
        let body = self.response_body.borrow();
        body[start.min(body.len())..body.len().min(start + max)].to_vec()
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        self.properties.borrow().get(&path.join(".")).cloned()
    }

    fn set_filter_state(&self, name: &str, value: &[u8]) {
        let value = String::from_utf8(value.to_vec()).unwrap();
        self.filter_state
            .borrow_mut()
            .insert(name.to_owned(), value);
    }

    fn shared(&self, key: &str) -> Shared {
        self.shared_calls.set(self.shared_calls.get() + 1);
        let shared = self.shared.borrow();
        shared
            .get(key)
            .map_or_else(Shared::default, |(bytes, cas)| Shared {
                bytes: bytes.clone(),
                cas: *cas,
            })
    }

    fn set_shared(&self, key: &str, value: &[u8], expected: u32) -> Result<(), CasMismatch> {
        self.shared_calls.set(self.shared_calls.get() + 1);
        let mut shared = self.shared.borrow_mut();
        // As Envoy: a key that was never set takes any version.
        if let Some((_, cas)) = shared.get(key)
            && expected != 0
            && expected != *cas
        {
            return Err(CasMismatch);
        }
        self.cas.set(self.cas.get() + 1);
        shared.insert(key.to_owned(), (value.to_vec(), self.cas.get()));
        Ok(())
    }

    fn call(
        &self,
        cluster: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        _timeout_ms: u32,
    ) -> Result<u32, CallRefused> {
        if self.refuse_calls.get() {
            return Err(CallRefused);
        }
        let mut calls = self.calls.borrow_mut();
        let token = u32::try_from(calls.len()).unwrap() + 1;
        let headers = headers
            .iter()
            .map(|&(n, v)| (n.to_owned(), v.to_owned()))
            .collect();
        calls.push(Call {
            token,
            cluster: cluster.to_owned(),
            headers,
            body: body.to_vec(),
        });
        Ok(token)
    }

    fn call_answer(&self, num_headers: usize, _body_bytes: usize) -> CallAnswer {
        if num_headers == 0 {
            CallAnswer::default()
        } else {
            self.answer.borrow().clone()
        }
    }

    fn counter(&self, name: &str) -> MetricId {
        self.define(name)
    }

    fn gauge(&self, name: &str) -> MetricId {
        self.define(name)
    }

    fn histogram(&self, name: &str) -> MetricId {
        self.define(name)
    }

    fn add(&self, metric: MetricId, n: u64) {
        *self
            .values
            .borrow_mut()
            .entry(self.name(metric))
            .or_default() += n;
    }

    fn record(&self, metric: MetricId, value: u64) {
        self.values.borrow_mut().insert(self.name(metric), value);
    }

    fn metric_value(&self, metric: MetricId) -> u64 {
        let name = self.name(metric);
        self.values.borrow().get(&name).copied().unwrap_or(0)
    }

    fn set_tick_period_ms(&self, ms: u32) {
        self.tick_ms.set(ms);
    }

    fn plugin_configuration(&self) -> Vec<u8> {
        Vec::new()
    }
}
