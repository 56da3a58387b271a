//! Does a template take message content as a list of parts?
//!
//! vLLM looks for a loop over a message's `content` in the template's syntax tree, following
//! assignments and macro arguments but not scopes. What it decides is what counts, so this follows
//! the same rules on minijinja's tree, including that an unusual assignment of `messages` (to
//! anything but a plain name) ends the search with "no".

use std::collections::{HashSet, VecDeque};

use minijinja::machinery::ast::{Call, CallArg, Expr, ForLoop, Macro, Stmt};
use minijinja::machinery::parse;
use minijinja::syntax::SyntaxConfig;

/// Names followed through assignments before giving up.
const MAX_NAMES: usize = 1000;

/// `true` if content should be a list of parts ("openai"), `false` for one string.
pub(super) fn takes_parts(source: &str, syntax: SyntaxConfig) -> bool {
    let Ok(tree) = parse(source, "chat", syntax) else {
        return false;
    };
    let mut found = Found::default();
    found.statement(&tree, None);
    found.loops_over_content().unwrap_or(false)
}

/// The parts of the tree that matter, in source order.
#[derive(Default)]
struct Found<'t, 's> {
    /// `{% set target = value %}`
    assignments: Vec<(&'t Expr<'s>, &'t Expr<'s>)>,
    /// Loops, with the index of the innermost macro around them.
    loops: Vec<(&'t ForLoop<'s>, Option<usize>)>,
    macros: Vec<&'t Macro<'s>>,
    calls: Vec<&'t Call<'s>>,
}

impl<'t, 's> Found<'t, 's> {
    fn statements(&mut self, list: &'t [Stmt<'s>], inside: Option<usize>) {
        for statement in list {
            self.statement(statement, inside);
        }
    }

    fn statement(&mut self, statement: &'t Stmt<'s>, inside: Option<usize>) {
        match statement {
            Stmt::Template(s) => self.statements(&s.children, inside),
            Stmt::EmitExpr(s) => self.expression(&s.expr),
            Stmt::ForLoop(s) => {
                self.loops.push((s, inside));
                self.expression(&s.iter);
                self.expressions(s.filter_expr.iter());
                self.statements(&s.body, inside);
                self.statements(&s.else_body, inside);
            }
            Stmt::IfCond(s) => {
                self.expression(&s.expr);
                self.statements(&s.true_body, inside);
                self.statements(&s.false_body, inside);
            }
            Stmt::WithBlock(s) => {
                self.expressions(s.assignments.iter().map(|(_, value)| value));
                self.statements(&s.body, inside);
            }
            Stmt::Set(s) => {
                self.assignments.push((&s.target, &s.expr));
                self.expression(&s.expr);
            }
            Stmt::SetBlock(s) => self.statements(&s.body, inside),
            Stmt::AutoEscape(s) => self.statements(&s.body, inside),
            Stmt::FilterBlock(s) => self.statements(&s.body, inside),
            Stmt::Block(s) => self.statements(&s.body, inside),
            Stmt::Macro(s) => self.definition(s),
            Stmt::CallBlock(s) => {
                self.call(&s.call);
                self.statements(&s.macro_decl.body, inside);
            }
            Stmt::Do(s) => self.call(&s.call),
            _ => {}
        }
    }

    fn definition(&mut self, definition: &'t Macro<'s>) {
        self.macros.push(definition);
        self.expressions(definition.defaults.iter());
        self.statements(&definition.body, Some(self.macros.len() - 1));
    }

    fn expressions(&mut self, list: impl Iterator<Item = &'t Expr<'s>>) {
        for expression in list {
            self.expression(expression);
        }
    }

    fn call(&mut self, call: &'t Call<'s>) {
        self.calls.push(call);
        self.expression(&call.expr);
        self.arguments(&call.args);
    }

    fn arguments(&mut self, arguments: &'t [CallArg<'s>]) {
        self.expressions(arguments.iter().map(|argument| match argument {
            CallArg::Pos(e)
            | CallArg::Kwarg(_, e)
            | CallArg::PosSplat(e)
            | CallArg::KwargSplat(e) => e,
        }));
    }

    /// Only calls are looked for; the parser bounds how deep expressions nest.
    fn expression(&mut self, expression: &'t Expr<'s>) {
        match expression {
            Expr::Call(e) => self.call(e),
            Expr::Var(_) | Expr::Const(_) => {}
            Expr::Slice(e) => {
                self.expression(&e.expr);
                self.expressions([&e.start, &e.stop, &e.step].into_iter().flatten());
            }
            Expr::UnaryOp(e) => self.expression(&e.expr),
            Expr::BinOp(e) => self.expressions([&e.left, &e.right].into_iter()),
            Expr::Compare(e) => {
                self.expression(&e.expr);
                self.expressions(e.ops.iter().map(|op| &op.expr));
            }
            Expr::IfExpr(e) => {
                self.expressions([&e.test_expr, &e.true_expr].into_iter());
                self.expressions(e.false_expr.iter());
            }
            Expr::Filter(e) => {
                self.expressions(e.expr.iter());
                self.arguments(&e.args);
            }
            Expr::Test(e) => {
                self.expression(&e.expr);
                self.arguments(&e.args);
            }
            Expr::GetAttr(e) => self.expression(&e.expr),
            Expr::GetItem(e) => self.expressions([&e.expr, &e.subscript_expr].into_iter()),
            Expr::List(e) => self.expressions(e.items.iter()),
            Expr::Tuple(e) => self.expressions(e.items.iter()),
            Expr::Map(e) => self.expressions(e.keys.iter().chain(e.values.iter())),
        }
    }

    /// `None` where vLLM's own search ends with an assertion, which it takes for "no".
    fn loops_over_content(&self) -> Option<bool> {
        let messages = self.names_of("messages")?;
        let mut message_names = Vec::new();
        for (node, _) in &self.loops {
            if messages
                .iter()
                .any(|name| is_access(&node.iter, name, None))
            {
                message_names.push(name_of(&node.target)?);
            }
        }
        let is_content = |e: &Expr| {
            message_names
                .iter()
                .any(|name| is_access(e, name, Some("content")))
        };
        let macro_parameters: Vec<HashSet<&str>> = self
            .macros
            .iter()
            .map(|node| self.content_parameters(node, &is_content))
            .collect();
        for (node, inside) in &self.loops {
            let iterated = name_of(&node.iter);
            let found = is_content(&node.iter)
                || match (inside, iterated) {
                    (Some(n), Some(name)) => macro_parameters
                        .get(*n)
                        .is_some_and(|names| names.contains(name)),
                    (None, Some(name)) => name == "content",
                    _ => false,
                };
            if found {
                return name_of(&node.target).map(|_| true);
            }
        }
        Some(false)
    }

    /// All names that hold `root` or a part of it, through assignments.
    fn names_of<'a>(&'a self, root: &'a str) -> Option<Vec<&'a str>> {
        let mut names = vec![root];
        let mut queue = VecDeque::from([root]);
        while let Some(name) = queue.pop_front() {
            for (target, value) in &self.assignments {
                if is_access(value, name, None) {
                    let target = name_of(target)?;
                    if !names.contains(&target) && names.len() < MAX_NAMES {
                        names.push(target);
                        queue.push_back(target);
                    }
                }
            }
        }
        Some(names)
    }

    /// A macro's parameters that are given a message's content somewhere.
    fn content_parameters<'a>(
        &'a self,
        definition: &'a Macro<'s>,
        is_content: &dyn Fn(&Expr) -> bool,
    ) -> HashSet<&'a str> {
        let parameters: Vec<&str> = definition.args.iter().filter_map(name_of).collect();
        let mut found = HashSet::new();
        let calls = self
            .calls
            .iter()
            .filter(|call| name_of(&call.expr) == Some(definition.name));
        for call in calls {
            let mut position = 0;
            for argument in &call.args {
                match argument {
                    CallArg::Pos(value) => {
                        if is_content(value) {
                            found.extend(parameters.get(position));
                        }
                        position += 1;
                    }
                    CallArg::Kwarg(name, value) if is_content(value) => {
                        found.extend(parameters.iter().find(|parameter| *parameter == name));
                    }
                    _ => {}
                }
            }
        }
        found
    }
}

fn name_of<'a>(expression: &Expr<'a>) -> Option<&'a str> {
    match expression {
        Expr::Var(variable) => Some(variable.id),
        _ => None,
    }
}

/// The variable (or its attribute `key`), perhaps filtered, tested or sliced.
fn is_access(expression: &Expr, name: &str, key: Option<&str>) -> bool {
    match expression {
        Expr::Filter(e) => e.expr.as_ref().is_some_and(|e| is_access(e, name, key)),
        Expr::Test(e) => is_access(&e.expr, name, key),
        Expr::Slice(e) => is_access(&e.expr, name, key),
        _ => match (expression, key) {
            (_, None) => name_of(expression) == Some(name),
            (Expr::GetAttr(e), Some(key)) => name_of(&e.expr) == Some(name) && e.name == key,
            (Expr::GetItem(e), Some(key)) => {
                let subscript = match &e.subscript_expr {
                    Expr::Const(constant) => constant.value.as_str(),
                    _ => None,
                };
                name_of(&e.expr) == Some(name) && subscript == Some(key)
            }
            _ => false,
        },
    }
}
