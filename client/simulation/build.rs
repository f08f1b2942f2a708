//! Has the client's code take its clock, its chance and its connections from the simulation.

fn main() {
    println!("cargo:rustc-cfg=simulated");
    println!("cargo:rerun-if-changed=build.rs");
}
