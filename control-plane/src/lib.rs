//! The control plane: hears what engines say about their caches, keeps which replica holds which
//! prefix, and tells the gateways.
//!
//! | module | what it does |
//! |---|---|
//! | [`events`] | ZMQ frames -> KV events |
//! | [`vocab`] | token ids -> bytes |
//! | [`hub`] | a model's name -> its folder in the Hugging Face cache |
//! | [`profiles`] | a model's folder -> prompt profile and vocabulary |
//! | [`block_hash`] | vLLM's own block hash, recomputed |
//! | [`discovery`] | replicas that come and go: found in the DNS or in Kubernetes |
//! | [`supervisor`] | the tasks of each replica |
//! | [`subscriber`] | follows one engine's events: order, replay, restarts |
//! | [`config`] | the configuration file |
//! | [`parts`] | a pool's profile and vocabulary, by its folder and its engines' settings |
//! | [`index`] | KV events -> which replica holds which prefix |
//! | [`canonicity`] | whether generated tokens are those of their text |
//! | [`scrape`] | engines' load and health |
//! | [`facts`] | engines' adapters and versions |
//! | [`feedback`] | whether predictions are right, and the alarm |
//! | [`live`] | the last decisions, and sums over the last minutes |
//! | [`status`] | how the fleet is, for the page and `top` |
//! | [`engine`] | all that is known, and the table made of it |
//! | [`server`] | what gateways, Prometheus and operators ask |
//! | [`serve`] | the parts put together |
//! | [`metrics`] | what Prometheus reads |
//! | [`starts`] | prompts that begin with something new each time |
//! | [`doctor`] | looks at a running fleet and says what to change |
//! | [`cli`] | the command line |

pub mod block_hash;
pub mod canonicity;
mod chain;
pub mod cli;
mod clock;
pub mod config;
pub mod discovery;
mod disk;
pub mod doctor;
pub mod drains;
pub mod engine;
pub mod events;
pub mod explain;
pub mod facts;
pub mod feedback;
pub mod hub;
pub mod index;
pub mod live;
pub mod metrics;
pub mod news;
pub mod parts;
pub mod profiles;
pub mod report;
pub mod scrape;
pub mod serve;
pub mod server;
pub mod starts;
pub mod status;
pub mod subscriber;
pub mod supervisor;
pub mod vocab;
