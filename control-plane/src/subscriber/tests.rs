mod machine;
mod simulation;
mod sockets;
