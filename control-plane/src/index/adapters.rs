//! LoRA adapters: which namespaces are whose, so that all of one can be forgotten when its weights
//! change under the same name.

use super::PoolIndex;
use super::arena::NIL;
use super::evict::Marks;
use crate::events::Stored;
use hashbrown::HashMap;
use prefix_picker_core::ids::ReplicaIndex;

/// Stands for an adapter's name: a hash keyed by the pool's secret.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Adapter(pub(super) u64);

/// The adapters of the roots that have one. One adapter has a root per salt.
#[derive(Debug, Default)]
pub(super) struct Adapters {
    roots: HashMap<u32, Adapter>,
}

impl Adapters {
    pub(super) fn set(&mut self, root: u32, adapter: Adapter) {
        self.roots.insert(root, adapter);
    }

    pub(super) fn get(&self, root: u32) -> Option<Adapter> {
        self.roots.get(&root).copied()
    }

    /// The root is gone.
    pub(super) fn forget(&mut self, root: u32) {
        if self.roots.remove(&root).is_some() && self.roots.is_empty() {
            self.roots = HashMap::new();
        }
    }

    fn roots_of(&self, adapter: Adapter) -> Vec<u32> {
        let of_adapter = |entry: &(&u32, &Adapter)| *entry.1 == adapter;
        self.roots
            .iter()
            .filter(of_adapter)
            .map(|(root, _)| *root)
            .collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.roots.allocation_size()
    }
}

impl PoolIndex {
    /// What stands for an adapter of this name.
    fn adapter_named(&self, name: &str) -> Adapter {
        Adapter(self.hasher.bytes(0x6164_6170, name.as_bytes()))
    }

    /// The adapter that an event names; an adapter known by its number alone has no name to compare.
    pub(super) fn adapter_of(&self, event: &Stored) -> Option<Adapter> {
        match (&event.lora_name, event.lora_id) {
            (Some(name), _) => Some(self.adapter_named(name)),
            (None, Some(id)) => {
                #[allow(clippy::cast_sign_loss)] // any bits tell numbers apart
                let bytes = (id as u64).to_le_bytes();
                Some(Adapter(self.hasher.bytes(0x6e75_6d62, &bytes)))
            }
            (None, None) => None,
        }
    }

    /// Forgets all that a replica holds for a LoRA adapter, with any salt and in any tier: it has
    /// been loaded anew under the same name, or from elsewhere, so that what was computed with its
    /// old weights is no use. Returns how many engine blocks that were.
    ///
    /// The engine goes on announcing removes of these blocks; they are not known then. Blocks that
    /// it stores below them wait without credit, since it may reuse what it should not.
    pub fn drop_adapter(&mut self, replica: ReplicaIndex, name: &str) -> usize {
        let Some(mut held) = self
            .replicas
            .get_mut(usize::from(replica.0))
            .and_then(Option::take)
        else {
            return 0;
        };
        let adapter = self.adapter_named(name);
        held.pending.drop_adapter(adapter);
        let before = held.held.len();
        let (nodes, marks) = self.below(self.adapters.roots_of(adapter));
        held.retain_nodes(|node| !marks.has(node));
        let gone = before - held.held.len();
        self.put_replica(replica, held);
        for node in nodes {
            self.set_state(node, replica, 0);
        }
        self.settle_some(super::CREDIT_STEPS_PER_CALL);
        gone
    }

    /// All nodes below these, they themselves left out.
    fn below(&self, roots: Vec<u32>) -> (Vec<u32>, Marks) {
        let mut marks = Marks::new(self.nodes.slots());
        let mut nodes = Vec::new();
        let mut at = roots;
        while let Some(node) = at.pop() {
            at.extend(self.nodes.children(node));
            if self.nodes.get(node).links.parent != NIL {
                marks.mark(node);
                nodes.push(node);
            }
        }
        (nodes, marks)
    }
}
