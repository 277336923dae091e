from tests.study.toys import toy_plan, toy_study

__all__ = ["toy_plan", "toy_study"]
